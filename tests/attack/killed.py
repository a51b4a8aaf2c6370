"""Commands to kill, in forked processes: a kill every second leaves no time for imports."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from configs.cli import run_app
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.suite import Task
from sim_envs.world import AdvanceResult, World

Command = Callable[[Path], object]
"""Starts in a folder, or resumes there."""

EPISODES = 8


class _Unhurried(FakeWorld):
    def advance(self, actions: np.ndarray) -> AdvanceResult:
        time.sleep(0.02)
        return super().advance(actions)


class UnhurriedSuite(FakeSuite):
    """Slow worlds, so that kills hit episodes in progress."""

    def open(self, task: Task) -> World:
        return _Unhurried(success_at=12, image_size=self.protocol.camera_size, language=task.language)


def evaluate(suite: str, folder: Path) -> None:
    """`eval.run` in two modes."""
    from eval.run import app

    statuses = [json.loads(file.read_text())["status"] for file in folder.glob("*/manifest.json")]
    if statuses and set(statuses) == {"complete"}:  # killed after its end
        return
    given = f"--suite {suite} --init-ids 0-{EPISODES - 1} --policy noop --mode actions unified --video none"
    resume = ["--resume"] if statuses else []
    run_app(app, [*given.split(), "--no-report", "--output-dir", str(folder), *resume])


def collect(folder: Path, image_size: int = 8) -> None:
    """`eval.collect`, resumed by the same command."""
    from tests.eval.collect import collecting

    source = collecting.FakeDemonstrationSource(pause_s=0.02, image_size=image_size)
    assert collecting.collect(folder, source=source, image_size=image_size) == 0


def train(arguments: tuple[str, ...], folder: Path) -> None:
    """`eval.train`."""
    from tests.eval.train import test_train_cli as here

    resume = ["--resume"] if (folder / "run.json").is_file() else []
    with here.in_a_world_without_physics():
        assert here.call([*arguments, "--output-dir", str(folder), *resume]) == 0


_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(
    [
        __name__,
        *("eval.run", "eval.rollout.evaluation", "eval.report.console", "scipy.stats", "scipy.linalg"),
        *("tests.eval.collect.collecting", "matplotlib.figure", "cv2"),
    ]
)


def seconds_of(command: Command, folder: Path) -> float:
    """Seconds that a command takes that nothing kills."""
    _kill_after(command, folder.with_name("first"), None)
    began = time.monotonic()
    _kill_after(command, folder, None)  # with nothing left to import
    return time.monotonic() - began


def kill_until_it_ends(command: Command, folder: Path, *, within_s: float, rng: random.Random) -> int:
    """Kill a command at random moments, and start it again, until it was quicker.

    Each time it is given a little longer, so that it ends on a machine that has become busy.

    Returns:
        The number of kills.
    """
    kills = 0
    while _kill_after(command, folder, rng.uniform(0, within_s * 1.05**kills)):
        kills += 1
    return kills


def _kill_after(command: Command, folder: Path, seconds: float | None) -> bool:
    """Start the command; returns whether it was killed. It may not end in any other way."""
    process = _FORKING.Process(target=_quietly, args=(command, folder))
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _quietly(command: Command, folder: Path) -> None:
    log = folder.with_suffix(".log").open("a")
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    command(folder)
