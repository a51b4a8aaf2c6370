"""Whole trainings, compiled as users have it, of a policy and of an adapter for one."""

import dataclasses
import shutil

import numpy as np
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
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.source import ADAPTER_CARD, TOKENIZER
from oxygen.weights.source import CARD as POLICY_CARD
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

OFTEN = {"log_every": 20, "save_every": 40}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, mixture):
    """A finished training's folder, and its last state."""
    folder = tmp_path_factory.mktemp("training")
    return folder, train(folder, training(**OFTEN), mixture, VOCABULARY)


@pytest.mark.slow
def test_it_learns_eight_samples_by_heart_which_the_policy_then_does_and_says(trained, mixture):
    """The served policy, from the checkpoint alone, gives back the demonstrations' actions and words."""
    folder, _ = trained
    first, *_, last = read_log(folder)
    assert last["flow_loss"] < 0.3 * first["flow_loss"]
    assert last["narration_accuracy"] == last["memory_accuracy"] == 1
    policy = served(checkpoint.newest(folder / "checkpoints"))
    for row in range(3):
        actions, said = answer(policy, mixture, row)
        wanted = mixture.actions[row, : MODEL.horizon]
        assert np.abs(actions - wanted).mean() < 0.25 * np.abs(wanted - wanted.mean()).mean()
        assert said == {task.name: mixture.texts[task.name][row] for task in TASKS}


@pytest.mark.slow
def test_a_killed_and_resumed_training_equals_the_uninterrupted_one(trained, mixture, tmp_path):
    """Stopped, then killed while it wrote a checkpoint: the one before counts; the log says nothing twice."""
    _, uninterrupted = trained
    for steps in (17, 23):
        train(tmp_path, training(save_every=40), mixture, VOCABULARY, should_stop=stop_at(steps))
    kept = tmp_path / "kept"
    shutil.copytree(checkpoint.newest(tmp_path / "checkpoints"), kept)
    train(tmp_path, training(log_every=20), mixture, VOCABULARY, should_stop=stop_at(33))
    torn = checkpoint.newest(tmp_path / "checkpoints")
    torn.rename(torn.with_name(f"{torn.name}.partial"))
    shutil.rmtree(tmp_path / "checkpoints/step_0000040")
    kept.rename(tmp_path / "checkpoints/step_0000040")
    resumed = train(tmp_path, training(**OFTEN), mixture, VOCABULARY)
    assert bits(resumed) == bits(uninterrupted)
    steps = [line["step"] for line in read_log(tmp_path)]
    assert steps == sorted(set(steps))


RANK, STEPS, FEW = 8, 150, samples(4)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A policy that nobody taught to speak."""
    folder, silent = tmp_path_factory.mktemp("base") / "policy", dataclasses.replace(training(), tasks=())
    writer(silent, FEW).write_policy(folder, random_params(MODEL, 0), step=0)
    return folder


def of_adapter(base):
    changes = {"adapter": RANK, "start_from": str(base), "learning_rate": 0.02, "ema": 0.5, "steps": STEPS}
    options = changed(RECIPE, **changes, log_every=30, save_every=75)
    card = {"name": "silent", "kind": "oxygen", "model": MODEL.name, "weights": str(base)}
    weights = {"start_from": str(base), "norm_stats": str(base)}
    return dataclasses.replace(training(), options=options, base=card, **weights)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory, base):
    folder = tmp_path_factory.mktemp("adapter")
    return folder, train(folder, of_adapter(base), FEW, VOCABULARY)


def test_the_served_policy_says_what_the_adapter_was_taught_and_acts_as_before(adapted, base):
    """Its folder has OxyGen's layout and its cards."""
    folder = checkpoint.newest(adapted[0] / "checkpoints")
    before, _ = answer(served(base), FEW, 0)
    after, said = answer(served(base, AdapterSource(file=str(folder / ADAPTER))), FEW, 0)
    assert after.tobytes() == before.tobytes()
    assert said == {task.name: FEW.texts[task.name][0] for task in TASKS}
    arrays = read_npz(folder / ADAPTER)
    assert adapters.rank_of(arrays, MODEL, "adapter") == RANK
    card = read_json_object(folder / ADAPTER_CARD)
    assert (card["rank"], card["alpha"], card["mask"], card["training_step"]) == (RANK, RANK, "exact", STEPS)
    assert card["language_tasks"] == {task.name: task.prompt for task in TASKS}
    assert yaml.safe_load((folder / POLICY_CARD).read_text())["adapter"] == ADAPTER
    *_, last = [line for line in read_log(adapted[0]) if "loss" in line]
    assert last["memory_accuracy"] == last["narration_accuracy"] == 1


def test_the_policy_of_an_adapter_is_found_from_anywhere(base, tmp_path, monkeypatch):
    """The policy was given by a relative path."""
    monkeypatch.chdir(base.parent)
    card = of_checkpoint(base.name).model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    arrays = nested(initial_arrays(MODEL, rank=RANK, seed=0))
    writer(dataclasses.replace(of_adapter(base), base=card), FEW).write_policy(
        tmp_path / "adapter", arrays, step=1
    )
    monkeypatch.chdir(tmp_path)
    policy = of_checkpoint("adapter")
    assert (policy.weights, policy.tokenizer) == (str(base), str(base / TOKENIZER))
    assert policy.adapter.file == f"adapter/{ADAPTER}"


def test_paths_of_a_card_are_relative_to_its_folder_and_urls_stay(adapted, tmp_path):
    shutil.copytree(checkpoint.newest(adapted[0] / "checkpoints"), tmp_path / "mine")
    card = tmp_path / "mine" / POLICY_CARD
    content = {**yaml.safe_load(card.read_text()), "embodiment": "libero", "tokenizer": "a.model"}
    url = "https://host/a.npz"
    for weights, found in (("base", str(tmp_path / "mine/base")), ("gs://host/base", "gs://host/base")):
        card.write_text(yaml.safe_dump({**content, "weights": weights, "adapter": url}))
        policy = of_checkpoint(str(tmp_path / "mine"))
        assert (policy.weights, policy.adapter.file) == (found, url)


def test_a_stopped_and_resumed_training_of_an_adapter_equals_the_uninterrupted_one(adapted, base, tmp_path):
    for stop in (stop_at(40), lambda: False):
        state = train(tmp_path, of_adapter(base), FEW, VOCABULARY, should_stop=stop)
    assert bits(state) == bits(adapted[1])
