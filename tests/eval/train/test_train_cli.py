"""`oxygen-eval train` from demonstrations to rollouts: a tiny model, and a world without physics."""

import contextlib
import dataclasses
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from configs.exits import INTERRUPTED, DeferredSignals
from configs.paths import locked
from contracts.errors import UsageError
from eval.records.schema import RunFolder
from eval.train import training
from eval.train.__main__ import app
from oxygen.model.config import PRESETS
from oxygen.training import checkpoint
from oxygen.training.batches import TrainingBatches
from oxygen.training.run_folder import read_log, read_options
from oxygen.weights.formats import SINGLE_FILE
from sim_envs.fake import FakeWorld
from sim_envs.suite import Task
from sim_envs.world import AdvanceResult
from tests.eval.collect.collecting import collect
from tests.eval.doubles import without_physics
from tests.oxygen.compiling import compile_soon
from tests.oxygen.training.conftest import MODEL as SMALL

MODEL = dataclasses.replace(SMALL, name="small-for-eval-train", prompt_buckets=(32,))
STEPS = 4
ROLLOUTS = ("--eval-suite", "libero_object", "--eval-task-ids", "0", "--eval-init-ids", "0")


def solved_in_seven_steps(task: Task) -> FakeWorld:
    return FakeWorld(success_at=7, image_size=MODEL.image_size)


def resuming(folder: Path) -> str:
    return f"oxygen-eval train --resume --output-dir {folder}"


def solved_at(folder: Path) -> dict[int, float]:
    """How many of the rollouts of every checkpoint were solved, %."""
    name = "libero_object_pc_success"
    return {line["step"]: line[name] for line in read_log(folder) if name in line}


@contextlib.contextmanager
def in_a_world_without_physics() -> Iterator[None]:
    """A model that is trained in a moment, and worlds that are solved after seven steps whatever is done."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, MODEL.name, MODEL)
        compile_soon(patch)
        without_physics(patch, solved_in_seven_steps)
        yield


@pytest.fixture(autouse=True, scope="module")
def in_no_world():
    with in_a_world_without_physics():
        yield


def call(arguments: Sequence[str]) -> int:
    return app(arguments, exit_on_error=False, print_error=False, result_action="return_value")


def resume(folder: Path, *options: str) -> int:
    """Goes on with a training, which need not be told anything else."""
    return call(["--resume", "--output-dir", str(folder), *options])


@pytest.fixture(scope="module")
def always(tmp_path_factory) -> list[str]:
    """Options that are always given: a handful of demonstrations, and a few steps."""
    demonstrations, side = tmp_path_factory.mktemp("demonstrations"), MODEL.image_size
    assert collect(demonstrations, image_size=side) == 0
    options = f"--data {demonstrations} --model {MODEL.name} --language-tasks narration --steps {STEPS}"
    return f"{options} --batch 8 --save-every 2 --log-every 1".split()


@pytest.fixture(scope="module")
def command(always) -> Callable[..., int]:
    return lambda folder, *options: call([*always, "--output-dir", str(folder), *options])


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory) -> Path:
    """The folder of a training that nothing interrupted, with rollouts.

    `printed.txt` has its output, and `deferred.json` whether signals were deferred in each of its steps.
    """
    folder, deferred, batch = tmp_path_factory.mktemp("whole"), [], TrainingBatches.batch

    def noting(batches, step):
        handler = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        deferred.append(isinstance(handler, DeferredSignals))
        return batch(batches, step)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(TrainingBatches, "batch", noting)
        assert command(folder, *ROLLOUTS) == 0
    (folder / "printed.txt").write_text(printed.getvalue())
    (folder / "deferred.json").write_text(json.dumps(deferred))
    return folder


def assert_same(one: Path, other: Path, file: str = SINGLE_FILE) -> None:
    """That the newest checkpoints are the same; by default, what they serve."""
    mine, theirs = (
        safetensors.numpy.load_file(checkpoint.newest(folder / "checkpoints") / file)
        for folder in (one, other)
    )
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)


def test_every_checkpoint_is_rolled_out_and_the_last_line_names_the_policy(whole):
    assert solved_at(whole) == {2: 100.0, 4: 100.0}
    runs = [RunFolder(run).read_manifest() for run in sorted((whole / "rollouts").iterdir())]
    saved = sorted((whole / "checkpoints").iterdir())
    assert [run["config"]["policy"] for run in runs] == [str(each) for each in saved]
    assert (whole / "curves.png").stat().st_size > 1000
    assert not any("eval.libero" in run["command"] for run in runs)  # which nobody typed
    last = (whole / "printed.txt").read_text().splitlines()[-1]
    of_the_demonstrations = (
        "--suite libero_object libero_goal --num-trials-per-task 1 --task-ids 0 1 --assets a"
    )
    assert last == f"The policy: oxygen-eval libero --policy {saved[-1]} {of_the_demonstrations}"


@pytest.mark.slow
def test_resuming_after_the_time_limit_equals_an_uninterrupted_training(command, whole, tmp_path, capsys):
    assert command(tmp_path, *ROLLOUTS, "--minutes", "1e-9") == 0
    assert not (tmp_path / "rollouts").exists()
    assert f"Stopped at step 1 of {STEPS}; resume with {resuming(tmp_path)}" in capsys.readouterr().out
    assert [place.name for place in (tmp_path / "checkpoints").iterdir()] == ["step_0000001"]
    assert resume(tmp_path) == 0
    assert_same(tmp_path, whole)


@pytest.mark.slow
def test_resuming_with_options_that_change_the_result_or_in_two_processes_is_refused(command, tmp_path):
    assert command(tmp_path, "--minutes", "1e-9") == 0
    before = sorted(tmp_path.rglob("*"))
    with locked(tmp_path), pytest.raises(UsageError, match="another process is using"):
        resume(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(UsageError, match=r"recipe\.seed = 0, not 1"):
        resume(tmp_path, "--seed", "1")
    assert resume(tmp_path, "--log-every", "3") == 0
    assert [line["step"] for line in read_log(tmp_path)] == [1, 2, 3, 4]
    assert read_options(tmp_path)["log_every"] == 3


def test_demonstrations_of_another_robot_are_refused(command, tmp_path):
    with pytest.raises(UsageError, match=r"eef_position_0.*'droid'.*libero") as refused:
        command(tmp_path / "none", "--embodiment", "droid")
    assert "droid_jointpos" not in str(refused.value).split("Allowed")[1]
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_resuming_after_a_kill_equals_an_uninterrupted_training(always, whole, tmp_path):
    """Killed after the note of step 3: what was saved at step 2 is gone on from."""
    folder = tmp_path / "killed"
    arguments = [*always, "--output-dir", str(folder), *ROLLOUTS]
    died = subprocess.run([sys.executable, "-c", DYING, *arguments], check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert [place.name for place in (folder / "checkpoints").iterdir()] == ["step_0000002"]
    assert solved_at(folder) == {2: 100.0}
    assert resume(folder) == 0
    assert_same(folder, whole, checkpoint.STATE_FILE)
    assert_same(folder, whole)
    assert solved_at(folder) == {2: 100.0, 4: 100.0}


DYING = """
import os, signal, sys
from tests.eval.train import test_train_cli as here
from eval.train import training
line = training._line
def dying(step, recipe, numbers):
    if step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return line(step, recipe, numbers)
training._line = dying
with here.in_a_world_without_physics():
    here.call(sys.argv[1:])
"""
"""A process that trains until somebody kills it."""


def test_signals_are_deferred_only_while_there_are_steps_to_be_saved(whole):
    deferred = json.loads((whole / "deferred.json").read_text())
    assert deferred == [False, True, False, True], "a checkpoint is saved every second step"


@pytest.mark.slow
def test_ctrl_c_ends_training_after_the_step_without_rollouts(command, whole, tmp_path, capsys, monkeypatch):
    line = training._line

    def interrupting(step, recipe, numbers):
        if step == 1:
            signal.raise_signal(signal.SIGINT)
        return line(step, recipe, numbers)

    with monkeypatch.context() as patch:
        patch.setattr(training, "_line", interrupting)
        assert command(tmp_path, *ROLLOUTS) == INTERRUPTED
    told = capsys.readouterr()
    assert f"Stopped at step 2 of {STEPS}; resume with {resuming(tmp_path)}" in told.out
    assert told.err.count("compiling the training step, ") == 1
    assert not (tmp_path / "rollouts").exists()
    assert resume(tmp_path) == 0
    assert_same(tmp_path, whole)


@dataclasses.dataclass
class Interrupted(FakeWorld):
    """Somebody presses Ctrl-C while it moves."""

    def advance(self, actions: np.ndarray) -> AdvanceResult:
        signal.raise_signal(signal.SIGINT)
        return super().advance(actions)


@pytest.mark.slow
def test_ctrl_c_in_a_rollout_keeps_its_checkpoint(command, tmp_path, capsys, monkeypatch):
    without_physics(monkeypatch, lambda task: Interrupted(image_size=MODEL.image_size))
    assert command(tmp_path, *ROLLOUTS) == INTERRUPTED
    assert f"Stopped at step 2 of {STEPS}; resume with {resuming(tmp_path)}" in capsys.readouterr().out
    (run,) = (tmp_path / "rollouts").iterdir()
    assert RunFolder(run).read_manifest()["status"] == "interrupted"
    without_physics(monkeypatch, solved_in_seven_steps)
    assert command(tmp_path, *ROLLOUTS, "--resume") == 0
    assert solved_at(tmp_path) == {2: 100.0, STEPS: 100.0}


@pytest.mark.slow
def test_resuming_plays_interrupted_rollouts_of_the_last_checkpoint(command, tmp_path, capsys, monkeypatch):
    assert command(tmp_path) == 0
    without_physics(monkeypatch, lambda task: Interrupted(image_size=MODEL.image_size))
    assert command(tmp_path, *ROLLOUTS, "--resume") == INTERRUPTED
    assert f"Its rollouts are missing; play them with {resuming(tmp_path)}" in capsys.readouterr().out
    without_physics(monkeypatch, solved_in_seven_steps)
    assert command(tmp_path, *ROLLOUTS, "--resume") == 0
    assert solved_at(tmp_path) == {STEPS: 100.0}
    played = len(list((tmp_path / "rollouts").iterdir()))
    assert command(tmp_path, *ROLLOUTS, "--resume") == 0
    assert len(list((tmp_path / "rollouts").iterdir())) == played
