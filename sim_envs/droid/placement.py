"""Initial states: where the objects of a task stand, as a function of (task, init id, seed)."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping

import numpy as np

from configs.errors import UsageError
from sim_envs.droid.machines import ConveyorShape, RampShape
from sim_envs.droid.shapes import LineShape, Machine
from sim_envs.droid.task_file import ObjectConfig, TaskConfig

STORED = 50
"""Initial states that every run has in common: drawn once and for all, whatever the seed."""

FIRST_DRAWN = 1000
"""From this id on, states are drawn anew for every seed."""

_GAP = 0.015
"""The least room (m) between two objects."""

_TRIES = 400

_LONG = (ConveyorShape, RampShape, LineShape)
"""Shapes that take up the rectangle that they are, not the circle around it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """Where an object stands.

    Attributes:
        x: Its middle in the robot's base frame, m.
        y: Likewise.
        yaw: Its rotation about the vertical, rad.
        z: Its underside, m above the table.
    """

    x: float
    y: float
    yaw: float
    z: float = 0.0


def draw(task: TaskConfig, *, init_id: int, seed: int) -> Mapping[str, Placement]:
    """An initial state of a task.

    Raises:
        UsageError: The objects' ranges do not let them stand apart.
    """
    draws = random_stream(task, init_id=init_id, seed=seed)
    crowded = ("", "")
    for _ in range(_TRIES):
        placed = {name: _drawn(thing, draws) for name, thing in task.objects.items()}
        placed |= {
            name: _carried(placed[name], placed[thing.carrier], thing, task.objects[thing.carrier])
            for name, thing in task.objects.items()
            if thing.carrier is not None
        }
        crowded = _crowded(task.objects, placed)
        if crowded is None:
            return placed
    raise UsageError(
        f"two objects in one place: {crowded[0]!r} and {crowded[1]!r} of task {task.name} found no room "
        f"beside each other in {_TRIES} draws; widen their ranges, or move them apart"
    )


def random_stream(task: TaskConfig, *, init_id: int, seed: int, purpose: int = 0) -> np.random.Generator:
    """The random numbers of an initial state: for where its objects stand, or for some other purpose."""
    name = int.from_bytes(hashlib.sha256(task.name.encode()).digest()[:8], "big")
    numbers = (name, init_id, seed) if init_id >= FIRST_DRAWN else (name, init_id)
    return np.random.default_rng(np.random.SeedSequence(numbers, spawn_key=(purpose,) if purpose else ()))


def _drawn(thing: ObjectConfig, draws: np.random.Generator) -> Placement:
    x, y, yaw = (float(draws.uniform(*span)) for span in (thing.x, thing.y, thing.yaw))
    return Placement(x=x, y=y, yaw=math.radians(yaw))


def _carried(place: Placement, carrier: Placement, thing: ObjectConfig, on: ObjectConfig) -> Placement:
    """Where something is that is given in the frame of what carries it."""
    assert isinstance(on.shape, Machine)
    x, y, z = on.shape.seat(place.x, place.y, thing.shape.extent[0] / 2)
    cos, sin = math.cos(carrier.yaw), math.sin(carrier.yaw)
    at = carrier.x + cos * x - sin * y, carrier.y + sin * x + cos * y
    return Placement(x=at[0], y=at[1], yaw=carrier.yaw + place.yaw, z=z)


def _crowded(objects: Mapping[str, ObjectConfig], placed: Mapping[str, Placement]) -> tuple[str, str] | None:
    """Two objects that are too close; None if all stand apart, but for what carries others."""
    names = list(objects)
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            if one == objects[other].carrier or other == objects[one].carrier:
                continue
            if _room(objects[one], placed[one], objects[other], placed[other]) < _GAP:
                return one, other
    return None


def _room(one: ObjectConfig, at: Placement, other: ObjectConfig, there: Placement) -> float:
    """Room (m) between two objects: circles, but for what is long and stands fast."""
    if isinstance(other.shape, _LONG):
        one, at, other, there = other, there, one, at
    away = there.x - at.x, there.y - at.y
    if not isinstance(one.shape, _LONG):
        return math.hypot(*away) - one.footprint - other.footprint
    cos, sin = math.cos(at.yaw), math.sin(at.yaw)
    beside = cos * away[0] + sin * away[1], cos * away[1] - sin * away[0]
    outside = (max(0.0, abs(b) - side / 2) for b, side in zip(beside, one.shape.extent, strict=False))
    return math.hypot(*outside) - other.footprint
