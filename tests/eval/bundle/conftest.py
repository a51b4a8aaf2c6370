"""A checkpoint as training leaves it, runs of it, and the folder it is bundled in."""

import dataclasses
from pathlib import Path

import pytest

from configs.training import TrainConfig
from eval import libero
from eval.bundle.bundling import bundle
from eval.rollout.executors import executor
from oxygen.model import params
from oxygen.model.config import TINY
from oxygen.robots import tokenizer
from oxygen.serving.language import LanguageTask
from oxygen.training import checkpoint as checkpoints
from oxygen.training.config import TrainingConfig
from sim_envs.fake import FakeWorld
from sim_envs.truth.ground_truth import Narration, Phase
from sim_envs.truth.wording import narrate
from tests.eval.collect.collecting import NEVER, collect
from tests.eval.doubles import FakeAssets, FakePolicy, opened, without_physics
from tests.eval.train.test_train import moments

STEP = 7


@pytest.fixture(scope="session")
def demonstrations(tmp_path_factory) -> Path:
    """Two tasks of two suites from initial states 0, 1 and one from which they are never solved."""
    folder = tmp_path_factory.mktemp("collected") / "demos"
    assert collect(folder, init_ids=(0, 1, NEVER)) == 0
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory, demonstrations) -> Path:
    """A checkpoint of `tiny` as training leaves it, with the state to go on from; random parameters."""
    folder = tmp_path_factory.mktemp("training") / f"step_{STEP:07d}"
    write_checkpoint(folder, demonstrations, seed=0)
    return folder


def write_checkpoint(
    folder: Path, demonstrations: Path, *, seed: int, start: Path | str | None = None
) -> None:
    training = TrainingConfig(
        model=TINY,
        embodiment="libero",
        tasks=(LanguageTask(name="narration", prompt="Narrate: ", max_tokens=8),),
        options=TrainConfig(steps=STEP, seed=seed, data=(str(demonstrations),)),
        start_from=None if start is None else str(start),
        wordings={"open it": ("open it", "pull it"), "close it": ("close it", "shut it", "push it")},
    )
    writer = checkpoints.CheckpointWriter(
        training=training,
        statistics={"state": moments(8, 1.0), "actions": moments(7, 0.5)},
        tokenizer=tokenizer.tiny().serialized,
        frames=12_345,
    )
    writer.write_policy(folder, params.random_params(TINY, seed), step=STEP)
    (folder / checkpoints.STATE_FILE).write_bytes(b"the moments of the optimiser")


class Narrator(FakePolicy):
    """Says at every query that the bowl is approached, which is true at the first one alone."""

    def complete(self):
        reply = super().complete()
        said = narrate(Narration(phase=Phase.APPROACH, object="black bowl"))
        texts = tuple(dataclasses.replace(text, text=said) for text in reply.finished)
        return dataclasses.replace(reply, finished=texts)


class Silent(FakePolicy):
    """Says nothing."""

    def complete(self):
        return dataclasses.replace(super().complete(), requested=(), finished=())


@pytest.fixture
def evaluate(monkeypatch, tmp_path):
    """Runs a policy by its name on worlds without physics, which are solved after 12 steps."""
    monkeypatch.setattr(
        executor,
        "open_policies",
        lambda resolved, variants, **_: [
            opened(Narrator() if resolved.tasks else Silent()) for _ in variants
        ],
    )
    without_physics(
        monkeypatch,
        lambda task: FakeWorld(success_at=12),
        find_assets=lambda source: FakeAssets(name="no-physics"),
    )

    def run(policy: Path, *options: str, init_ids: str = "1,2") -> Path:
        folder = tmp_path / f"runs_{len(list(tmp_path.iterdir()))}"
        where = ["--suite", "libero_object", "--task-ids", "0,1", "--init-ids", init_ids]
        what = ["--policy", str(policy), *where]
        texts = [] if "--language-tasks" in options else ["--language-tasks", "narration"]
        how = [*texts, "--video", "none", "--output-dir", str(folder), *options]
        assert libero.app([*what, *how], result_action="return_value") == 0
        (made,) = folder.iterdir()
        return made

    return run


@pytest.fixture
def shipped(tmp_path, checkpoint) -> Path:
    """The checkpoint, bundled without results."""
    folder = tmp_path / "assets" / "tiny"
    bundle(checkpoint, [], folder)
    return folder
