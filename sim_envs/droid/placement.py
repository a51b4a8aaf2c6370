"""Samples initial placements of a task's objects from (task, init id, seed)."""

import dataclasses
import itertools
import math
from collections.abc import Mapping

import numpy as np

from configs.errors import UsageError
from configs.hashing import seed_of
from sim_envs.droid.shapes import ConveyorShape, LineShape, Machine, RampShape
from sim_envs.droid.task_file import ObjectConfig, TaskConfig

STORED = 50
"""Number of initial states that do not depend on the seed."""

FIRST_SAMPLED = 1000
"""From this id on, states depend on the seed."""

_GAP = 0.015  # minimal distance (m) between two objects

_TRIES = 400

_LONG = (ConveyorShape, RampShape, LineShape)  # shapes that occupy a rectangle rather than a circle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """Placement of an object."""

    x: float  # its center in the frame of the robot's base, m
    y: float  # likewise
    yaw: float  # rotation about the vertical, rad
    z: float = 0.0  # height of its underside above the table, m


def draw(task: TaskConfig, *, init_id: int, seed: int) -> Mapping[str, Placement]:
    """Sample an initial state of a task.

    Raises:
        UsageError: The objects' ranges leave too little room.
    """
    draws = random_stream(task, init_id=init_id, seed=seed)
    crowded = ("", "")
    for _ in range(_TRIES):
        placed = {}
        for name, obj in task.objects.items():
            x, y, yaw = (float(draws.uniform(*span)) for span in (obj.x, obj.y, obj.yaw))
            placed[name] = Placement(x=x, y=y, yaw=math.radians(yaw))
        placed |= {
            name: _carried(placed[name], placed[obj.carrier], obj, task.objects[obj.carrier])
            for name, obj in task.objects.items()
            if obj.carrier is not None
        }
        pairs = (
            (one, other)
            for one, other in itertools.combinations(task.objects, 2)
            if one != task.objects[other].carrier and other != task.objects[one].carrier
        )
        close = (
            (one, other)
            for one, other in pairs
            if _room(task.objects[one], placed[one], task.objects[other], placed[other]) < _GAP
        )
        crowded = next(close, None)
        if crowded is None:
            return placed
    raise UsageError(
        f"two objects in one place: {crowded[0]!r} and {crowded[1]!r} of task {task.name} do not fit "
        f"beside each other in {_TRIES} samples; widen their ranges, or move them apart"
    )


def random_stream(task: TaskConfig, *, init_id: int, seed: int, purpose: int = 0) -> np.random.Generator:
    """The random generator of an initial state, separate for each purpose (0: placement)."""
    name = seed_of(task.name)
    numbers = (name, init_id, seed) if init_id >= FIRST_SAMPLED else (name, init_id)
    return np.random.default_rng(np.random.SeedSequence(numbers, spawn_key=(purpose,) if purpose else ()))


def _carried(place: Placement, carrier: Placement, obj: ObjectConfig, on: ObjectConfig) -> Placement:
    """The placement of an object given in its carrier's frame."""
    assert isinstance(on.shape, Machine)
    x, y, z = on.shape.seat(place.x, place.y, obj.shape.extent[0] / 2)
    cos, sin = math.cos(carrier.yaw), math.sin(carrier.yaw)
    at = carrier.x + cos * x - sin * y, carrier.y + sin * x + cos * y
    return Placement(x=at[0], y=at[1], yaw=carrier.yaw + place.yaw, z=z)


def _room(one: ObjectConfig, at: Placement, other: ObjectConfig, there: Placement) -> float:
    """Distance (m) between two objects as circles, or rectangles for `_LONG` shapes."""
    if isinstance(other.shape, _LONG):
        one, at, other, there = other, there, one, at
    away = there.x - at.x, there.y - at.y
    if not isinstance(one.shape, _LONG):
        return math.hypot(*away) - one.footprint - other.footprint
    cos, sin = math.cos(at.yaw), math.sin(at.yaw)
    beside = cos * away[0] + sin * away[1], cos * away[1] - sin * away[0]
    outside = (max(0.0, abs(b) - side / 2) for b, side in zip(beside, one.shape.extent, strict=False))
    return math.hypot(*outside) - other.footprint
