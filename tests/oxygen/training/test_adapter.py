"""A trained adapter says what it was taught, resumes to the bit, and leaves the policy's weights alone."""

import dataclasses
import shutil

import pytest
import yaml

from configs.paths import read_json_object, read_npz
from oxygen.model import adapter as adapters
from oxygen.model.adapter import initial_arrays
from oxygen.model.params import nested, random_params
from oxygen.presets.policies import of_checkpoint
from oxygen.training import checkpoint
from oxygen.training.checkpoint import ADAPTER
from oxygen.training.run import train
from oxygen.training.run_folder import read_log
from oxygen.weights.adapter import CARD, AdapterSource
from oxygen.weights.source import CARD as POLICY_CARD
from oxygen.weights.source import TOKENIZER
from tests.oxygen.training.conftest import (
    MODEL,
    RECIPE,
    TASKS,
    VOCABULARY,
    answer,
    bits,
    changed,
    samples,
    served,
    stop_at,
    training,
    writer,
)

RANK, STEPS = 8, 150


@pytest.fixture(scope="module")
def mixture():
    return samples(4)


@pytest.fixture(scope="module")
def base(tmp_path_factory, mixture):
    """A policy that nobody taught to speak."""
    folder = tmp_path_factory.mktemp("base") / "policy"
    writer(dataclasses.replace(training(), tasks=()), mixture).write_policy(
        folder, random_params(MODEL, 0), step=0
    )
    return folder


def of_adapter(base):
    options = changed(
        RECIPE,
        adapter=RANK,
        start_from=str(base),
        learning_rate=0.02,
        ema=0.5,
        steps=STEPS,
        log_every=30,
        save_every=75,
    )
    return dataclasses.replace(
        training(),
        options=options,
        start_from=str(base),
        norm_stats=str(base),
        base={"name": "silent", "kind": "oxygen", "model": MODEL.name, "weights": str(base)},
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory, base, mixture):
    folder = tmp_path_factory.mktemp("adapter")
    return folder, train(folder, of_adapter(base), mixture, VOCABULARY)


def test_the_served_policy_says_what_the_adapter_was_taught_and_acts_as_before(trained, base, mixture):
    """Its folder has OxyGen's layout and its cards."""
    folder = checkpoint.newest(trained[0] / "checkpoints")
    before, _ = answer(served(base), mixture, 0)
    after, said = answer(served(base, AdapterSource(file=str(folder / ADAPTER))), mixture, 0)
    assert after.tobytes() == before.tobytes()
    assert said == {task.name: mixture.texts[task.name][0] for task in TASKS}
    arrays = read_npz(folder / ADAPTER)
    assert adapters.rank_of(arrays, MODEL, "adapter") == RANK
    card = read_json_object(folder / CARD)
    assert (card["rank"], card["alpha"], card["mask"], card["training_step"]) == (RANK, RANK, "exact", STEPS)
    assert card["language_tasks"] == {task.name: task.prompt for task in TASKS}
    assert yaml.safe_load((folder / POLICY_CARD).read_text())["adapter"] == ADAPTER
    *_, last = [line for line in read_log(trained[0]) if "loss" in line]
    assert last["memory_accuracy"] == last["narration_accuracy"] == 1


def test_its_policy_is_found_from_anywhere(base, mixture, tmp_path, monkeypatch):
    """The policy was given by a relative path."""
    monkeypatch.chdir(base.parent)
    card = of_checkpoint(base.name).model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    arrays = nested(initial_arrays(MODEL, rank=RANK, seed=0))
    writer(dataclasses.replace(of_adapter(base), base=card), mixture).write_policy(
        tmp_path / "adapter", arrays, step=1
    )
    monkeypatch.chdir(tmp_path)
    policy = of_checkpoint("adapter")
    assert (policy.weights, policy.tokenizer) == (str(base), str(base / TOKENIZER))
    assert policy.adapter.file == f"adapter/{ADAPTER}"


def test_paths_of_a_card_are_relative_to_its_folder_and_urls_stay(trained, tmp_path):
    shutil.copytree(checkpoint.newest(trained[0] / "checkpoints"), tmp_path / "mine")
    card = tmp_path / "mine" / POLICY_CARD
    content = {**yaml.safe_load(card.read_text()), "embodiment": "libero", "tokenizer": "a.model"}
    url = "https://host/a.npz"
    for weights, found in (("base", str(tmp_path / "mine/base")), ("gs://host/base", "gs://host/base")):
        card.write_text(yaml.safe_dump({**content, "weights": weights, "adapter": url}))
        policy = of_checkpoint(str(tmp_path / "mine"))
        assert (policy.weights, policy.adapter.file) == (found, url)


def test_a_stopped_and_resumed_training_equals_the_uninterrupted_one(trained, base, mixture, tmp_path):
    for stop in (stop_at(40), lambda: False):
        state = train(tmp_path, of_adapter(base), mixture, VOCABULARY, should_stop=stop)
    assert bits(state) == bits(trained[1])
