"""Suites whose worlds are opened in worker processes: what is wrong there, or goes wrong. Imports no JAX."""

import os
import sys
import time
from pathlib import Path

import numpy as np

from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.libero.suite import LiberoSuite
from sim_envs.suite import Task
from sim_envs.world import AdvanceResult, World

DEADLY, HANGING, ONCE = 3, 4, 5
"""Initial states of `Errant` that end the process, never end, and end the process the first time."""


class LiberoWithoutJax(LiberoSuite):
    """LIBERO's suites, which refuse to open a world in a worker that has imported JAX."""

    def open(self, task: Task) -> World:
        check_no_jax()
        return super().open(task)


def check_no_jax() -> None:
    assert "pytest" in sys.modules or "jax" not in sys.modules, "a worker has imported JAX"


class Errant(FakeWorld):
    """Some of its initial states are the end of the process that it is in."""

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        super().reset(init_id=init_id, seed=seed, settle_steps=settle_steps)
        self.success_at = 5 + init_id
        self._init_id = init_id

    def advance(self, actions: np.ndarray) -> AdvanceResult:
        if self._init_id == HANGING:
            time.sleep(60)
        if self._init_id == DEADLY or (self._init_id == ONCE and _is_first_time()):
            os._exit(3)
        return super().advance(actions)


def _is_first_time() -> bool:
    """Whether nobody has asked before."""
    try:
        Path(os.environ["ERRANT_MARK"]).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class ErrantSuite(FakeSuite):
    def open(self, task: Task) -> World:
        check_no_jax()
        return Errant(image_size=self.protocol.camera_size, language=task.language)


class Unhurried(FakeWorld):
    """Takes its time, so that a kill hits it in the middle."""

    pause_s = 0.4

    def advance(self, actions: np.ndarray) -> AdvanceResult:
        time.sleep(self.pause_s)
        return super().advance(actions)


class UnhurriedSuite(FakeSuite):
    world = Unhurried

    def open(self, task: Task) -> World:
        return self.world(success_at=12, image_size=self.protocol.camera_size, language=task.language)


class Awaiting(FakeWorld):
    """Goes on after its first query when the test has seen it."""

    def advance(self, actions: np.ndarray) -> AdvanceResult:
        deadline = time.monotonic() + 120
        while self.steps and not Path(os.environ["SEEN_MARK"]).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return super().advance(actions)


class AwaitingSuite(UnhurriedSuite):
    world = Awaiting
