"""`python -m eval.train` and what it leaves: a folder that `python -m eval.libero --policy` takes."""

import dataclasses
import shutil

import numpy as np
import pytest
import yaml

from configs.errors import UsageError
from configs.schema import RunConfig
from configs.training import TrainConfig
from eval.policies.resolved import resolve_policy
from oxygen.model import params
from oxygen.model.config import PRESETS, TINY
from oxygen.robots import tokenizer
from oxygen.serving.language import LanguageTask
from oxygen.training import checkpoint
from oxygen.training.config import TrainingConfig
from oxygen.weights.source import CARD, RECORD
from sim_envs.fake import FakeWorld
from tests.eval.policies.test_policies import KEY, actions_of, moments, policy_of

pytestmark = pytest.mark.usefixtures("compiled_soon")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint of `tiny`'s sizes with random parameters, whose actions span half the range."""
    writer = checkpoint.CheckpointWriter(
        training=TrainingConfig(
            model=TINY,
            embodiment="libero",
            tasks=(LanguageTask(name="narration", prompt="Narrate: ", max_tokens=8),),
            options=TrainConfig(data=("none",)),
        ),
        statistics={"state": moments(8, 1.0), "actions": moments(7, 0.5)},
        tokenizer=tokenizer.tiny().serialized,
        frames=1,
    )
    folder = tmp_path_factory.mktemp("trained") / "step_0000007"
    writer.write_policy(folder, params.random_params(TINY, 0), step=7)
    return folder


@pytest.mark.slow
def test_a_checkpoint_is_a_policy_that_answers_its_language_tasks(folder, tmp_path):
    untrained = tmp_path / "untrained.yaml"
    untrained.write_text("{name: untrained, kind: oxygen, model: tiny, embodiment: libero}")
    random = actions_of(RunConfig(mode="actions", policy=str(untrained), language_tasks=()))
    trained = actions_of(RunConfig(mode="actions", policy=str(folder), language_tasks=()))
    np.testing.assert_allclose(trained, random / 2, rtol=0, atol=1e-5)
    config = RunConfig(mode="isolated", policy=str(folder), language_tasks=("narration",))
    policy, world = policy_of(config), FakeWorld(image_size=64)
    world.reset(init_id=0, seed=7, settle_steps=0)
    policy.reset(KEY)
    policy.act(world.observe())
    reply = policy.complete()
    assert [text.task for text in reply.finished] == ["narration"]
    assert reply.tokens > 0


def rewritten(folder, target, **changes):
    """The checkpoint's card and record in another folder, with the card changed."""
    shutil.copyfile(folder / RECORD, target / RECORD)
    card = yaml.safe_load((folder / CARD).read_text(encoding="utf-8"))
    (target / CARD).write_text(yaml.safe_dump({**card, **changes}), encoding="utf-8")
    return str(target)


def test_its_trained_language_tasks_are_the_default_and_others_are_refused(folder, tmp_path):
    for mode in ("actions", "unified"):
        resolved = resolve_policy(RunConfig(mode=mode, policy=str(folder)))
        assert [task.name for task in resolved.tasks] == ["narration"]
        assert resolved.remark is None
    with pytest.raises(UsageError, match=r"not learnt language task 'memory'.*it has learnt narration"):
        resolve_policy(RunConfig(policy=str(folder), language_tasks=("narration", "memory")))
    learnt = {"narration": "Tell: ", "poem": "Rhyme: "}
    resolved = resolve_policy(RunConfig(policy=rewritten(folder, tmp_path, language_tasks=learnt)))
    assert resolved.tasks == ()
    assert "narration, poem: name its file with --language-tasks" in resolved.remark
    other = rewritten(folder, tmp_path, language_tasks={"narration": "Say: "})
    with pytest.raises(UsageError, match=r"with prompt 'Narrate: '.*'Say: '"):
        resolve_policy(RunConfig(policy=other, language_tasks=("narration",)))


def test_a_policy_without_texts_decodes_them_only_as_a_load(folder, tmp_path):
    silent = rewritten(folder, tmp_path, language_tasks={})
    resolved = resolve_policy(RunConfig(policy=silent))
    assert resolved.tasks == ()
    assert "was not trained on texts, so none are requested; --language-tasks" in resolved.remark
    loaded = resolve_policy(RunConfig(policy=silent, language_tasks=("memory",)))
    assert [task.name for task in loaded.tasks] == ["memory"]
    assert "will be noise" in loaded.remark
    assert resolve_policy(RunConfig(policy=silent, language_tasks=())).remark is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": 99}, "horizon 10; 'tiny' now has 99"),
        ({"prompt_buckets": (48,)}, r"prompt_buckets \[32\]; 'tiny' now has \[48\]"),
        ({"siglip": dataclasses.replace(TINY.siglip, depth=3)}, "siglip.depth 4; 'tiny' now has 3"),
        ({"noise_scale": 0.5}, None),  # training does not use it
    ],
)
def test_a_checkpoint_of_a_model_that_has_changed_since_is_refused(folder, monkeypatch, change, message):
    monkeypatch.setitem(PRESETS, "tiny", dataclasses.replace(TINY, **change))
    policy = RunConfig(policy=str(folder), language_tasks=())
    if message is None:
        assert resolve_policy(policy).policy.model == "tiny"
        return
    with pytest.raises(UsageError, match=f"was trained with {message}.*Train it again"):
        resolve_policy(policy)


def test_a_checkpoint_without_sizes_is_refused(folder, tmp_path):
    shutil.copyfile(folder / CARD, tmp_path / CARD)
    for content, message in ((None, "has no"), ("{", "not JSON"), ("{}", "not what training writes")):
        if content is not None:
            (tmp_path / RECORD).write_text(content)
        with pytest.raises(UsageError, match=message):
            resolve_policy(RunConfig(policy=str(tmp_path), language_tasks=()))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("mine/checkpoints/step_0000501", "no checkpoint at .*Nearest: .*step_0000500, .*step_0001000$"),
        ("mien/checkpoints/step_0001000", "no checkpoint at .*Nearest: .*mine/checkpoints/step_0001000, "),
        ("mine", r"is the folder of a training; .*checkpoints/step_0001000$"),
        ("mine/checkpoints", r"is the folder of a training; .*checkpoints/step_0001000$"),
        ("mine/model.safetensors", "is a file; give the folder"),
        (".", r"policy\.yaml"),
    ],
)
def test_another_path_names_the_nearest_checkpoints(tmp_path, place, said):
    for step in ("step_0000500", "step_0001000"):
        folder = tmp_path / "runs/mine/checkpoints" / step
        folder.mkdir(parents=True)
        (folder / CARD).touch()
    (tmp_path / "runs/mine/model.safetensors").touch()
    with pytest.raises(UsageError, match=said):
        resolve_policy(RunConfig(policy=str(tmp_path / "runs" / place)))
