"""Initial states: where the objects of a task stand, as a function of (task, init id, seed)."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping

import numpy as np

from configs.errors import UsageError
from sim_envs.droid.task_file import ObjectConfig, TaskConfig

STORED = 50
"""Initial states that every run has in common: drawn once and for all, whatever the seed."""

FIRST_DRAWN = 1000
"""From this id on, states are drawn anew for every seed."""

_GAP = 0.015
"""The least room (m) between two objects."""

_TRIES = 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """Where an object stands.

    Attributes:
        x: Its middle in the robot's base frame, m.
        y: Likewise.
        yaw: Its rotation about the vertical, rad.
    """

    x: float
    y: float
    yaw: float


def draw(task: TaskConfig, *, init_id: int, seed: int) -> Mapping[str, Placement]:
    """An initial state of a task.

    Raises:
        UsageError: The objects' ranges do not let them stand apart.
    """
    draws = random_stream(task, init_id=init_id, seed=seed)
    crowded = ("", "")
    for _ in range(_TRIES):
        placed = {name: _drawn(thing, draws) for name, thing in task.objects.items()}
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


def _crowded(objects: Mapping[str, ObjectConfig], placed: Mapping[str, Placement]) -> tuple[str, str] | None:
    """Two objects that are too close; None if all stand apart."""
    names = list(objects)
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            distance = math.hypot(placed[one].x - placed[other].x, placed[one].y - placed[other].y)
            if distance < objects[one].footprint + objects[other].footprint + _GAP:
                return one, other
    return None
