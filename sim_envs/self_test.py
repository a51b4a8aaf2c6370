"""Tests whether a suite's worlds run correctly on this machine."""

import dataclasses
import enum
import time
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from sim_envs.suite import Suite
from sim_envs.testing import check_world
from sim_envs.world import World

SLOW_IMAGE_MS = 100.0
"""Rendering slower than this dominates the time of an evaluation."""

_STEPS = 20


class Status(enum.StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Result of one check.

    Attributes:
        name: What was checked.
        status: The outcome.
        detail: What was found.
        remedy: What to do; empty if there is nothing to do.
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""


@runtime_checkable
class SelfTesting(Protocol):
    """A suite that can test itself, for example against reference trajectories."""

    def self_test(self) -> Iterator[CheckResult]:
        """Run the suite's own tests, yielding each result when it is known."""


def check_machine(suite: Suite) -> Iterator[CheckResult]:
    """Run a suite's first task, then the suite's own tests if it has any."""
    world = suite.open(suite.tasks()[0])
    try:
        yield _rendering(world)
        yield _physics(world, suite)
        yield _conformance(world, suite)
    finally:
        world.close()
    if isinstance(suite, SelfTesting):
        yield from suite.self_test()


def _rendering(world: World) -> CheckResult:
    world.reset(init_id=0, seed=0, settle_steps=0)
    images = world.observe().images
    if not images:
        return CheckResult(name="rendering", status=Status.OK, detail="no cameras")
    began = time.perf_counter()
    world.observe()
    each_ms = 1e3 * (time.perf_counter() - began) / len(images)
    flat = [camera for camera, image in images.items() if np.ptp(image) == 0]
    if flat:
        return CheckResult(
            name="rendering",
            status=Status.FAIL,
            detail=f"the image of {', '.join(flat)} has a single colour",
            remedy="set MUJOCO_GL to another backend (egl, osmesa)",
        )
    slow = each_ms > SLOW_IMAGE_MS
    return CheckResult(
        name="rendering",
        status=Status.WARN if slow else Status.OK,
        detail=f"{each_ms:.0f} ms per image",
        remedy="render on a GPU (EGL), or use more --num-envs" if slow else "",
    )


def _physics(world: World, suite: Suite) -> CheckResult:
    world.reset(init_id=0, seed=0, settle_steps=0)
    hold = suite.interface.hold_action(world.observe().state, None)
    began = time.perf_counter()
    world.advance(np.tile(hold, (_STEPS, 1)))
    step_ms = 1e3 * (time.perf_counter() - began) / _STEPS
    faster = 1e3 / suite.protocol.control_hz / step_ms
    return CheckResult(
        name="physics",
        status=Status.OK,
        detail=f"{step_ms:.1f} ms per control step, {faster:.1f} times real time",
    )


def _conformance(world: World, suite: Suite) -> CheckResult:
    try:
        check_world(world, suite.interface, init_ids=_two_states(suite), renders_every_step=True)
    except AssertionError as violation:
        return CheckResult(
            name="determinism",
            status=Status.FAIL,
            detail=" ".join(str(violation).split()),
            remedy="install the versions that requirements.lock names",
        )
    return CheckResult(
        name="determinism", status=Status.OK, detail="the same actions give the same bits, in any order"
    )


def _two_states(suite: Suite) -> range:
    return range(min(2, suite.init_ids(suite.tasks()[0]).stored))
