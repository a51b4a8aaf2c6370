"""Checks that a suite's worlds run correctly on this machine."""

import contextlib
import dataclasses
import enum
import time
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from sim_envs.suite import Suite
from sim_envs.testing import check_world
from sim_envs.world import World

_SLOW_IMAGE_MS = 100.0  # rendering slower than this dominates the time of an evaluation
_STEPS = 20


class Status(enum.StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Result of one check."""

    name: str  # what was checked
    status: Status  # the outcome
    detail: str  # what was found
    remedy: str = ""  # what to do; empty if there is nothing to do

    @classmethod
    def of(
        cls, name: str, detail: str, *, ok: bool = True, remedy: str = "", otherwise: Status = Status.FAIL
    ) -> "CheckResult":
        """A result without a remedy if `ok`, else one with status `otherwise`."""
        status = Status.OK if ok else otherwise
        return cls(name=name, status=status, detail=detail, remedy="" if ok else remedy)


@runtime_checkable
class PreflightSuite(Protocol):
    """A suite with checks of its own, for example against reference trajectories."""

    def preflight(self) -> Iterator[CheckResult]:
        """Run the checks, yielding each result when it is known."""


def check_machine(suite: Suite) -> Iterator[CheckResult]:
    """Run a suite's first task, then the suite's own checks if it has any."""
    with contextlib.closing(suite.open(suite.tasks()[0])) as world:
        yield _rendering(world)
        world.reset(init_id=0, seed=0, settle_steps=0)
        hold = suite.interface.hold_action(world.observe().state, None)
        began = time.perf_counter()
        world.advance(np.tile(hold, (_STEPS, 1)))
        step_ms = 1e3 * (time.perf_counter() - began) / _STEPS
        faster = 1e3 / suite.protocol.control_hz / step_ms
        yield CheckResult.of("physics", f"{step_ms:.1f} ms per control step, {faster:.1f} times real time")
        yield _determinism(world, suite)
    if isinstance(suite, PreflightSuite):
        yield from suite.preflight()


def _rendering(world: World) -> CheckResult:
    world.reset(init_id=0, seed=0, settle_steps=0)
    images = world.observe().images
    if not images:
        return CheckResult.of("rendering", "no cameras")
    flat = [camera for camera, image in images.items() if np.ptp(image) == 0]
    if flat:
        detail = f"the image of {', '.join(flat)} has a single colour"
        remedy = "set MUJOCO_GL to another backend (egl, osmesa)"
        return CheckResult.of("rendering", detail, ok=False, remedy=remedy)
    began = time.perf_counter()
    world.observe()
    each_ms = 1e3 * (time.perf_counter() - began) / len(images)
    return CheckResult.of(
        "rendering",
        f"{each_ms:.0f} ms per image",
        ok=each_ms <= _SLOW_IMAGE_MS,
        remedy="render on a GPU (EGL), or use more --num-envs",
        otherwise=Status.WARN,
    )


def _determinism(world: World, suite: Suite) -> CheckResult:
    stored = suite.init_ids(suite.tasks()[0]).stored
    try:
        check_world(world, suite.interface, init_ids=range(min(2, stored)), renders_every_step=True)
    except AssertionError as violation:
        detail = " ".join(str(violation).split())
        remedy = (
            "in a suite of your own, mend what it names (all randomness comes from the seed of `reset`); "
            "else install the versions that requirements.lock names"
        )
        return CheckResult.of("determinism", detail, ok=False, remedy=remedy)
    return CheckResult.of("determinism", "the same actions give the same bits, in any order")
