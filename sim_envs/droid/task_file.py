"""Task files: objects, instruction and rubric; and initial states, sampled from (task, init id, seed)."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from configs.errors import check
from configs.paths import absolute, parse_yaml, read_text
from configs.schema import Name, Preset
from contracts.errors import UsageError, unknown
from contracts.hashing import seed_of
from sim_envs.droid import shapes
from sim_envs.droid.shapes import ConveyorShape, DrawerShape, LineShape, Machine, RampShape, Shape

NEAREST, FARTHEST = 0.28, 0.72  # distances (m) from the robot's axis that are reachable from above

Range = tuple[float, float]
Channel = Annotated[float, Field(ge=0, le=1)]


class ObjectConfig(Preset):
    """One object."""

    shape: Shape
    mass: float = Field(default=0.05, gt=0, le=2)  # kg
    # Sliding friction coefficient; in a contact the greater one of both objects applies.
    friction: float = Field(default=0.8, gt=0, le=2)
    # Rolling friction, m, on any surface; by default the greater one of 0.001 and the other object's. If
    # given, the object's own sliding friction applies, too.
    rolling: float | None = Field(default=None, gt=0, le=0.01)
    color: tuple[Channel, Channel, Channel] = (0.6, 0.6, 0.6)  # red, green, blue
    # The conveyor, turntable or ramp that carries it initially; the table by default.
    carrier: Name | None = None
    x: Range  # range of its center in the frame of the robot's base or of the carrier, m: forwards
    y: Range  # likewise, to the left
    yaw: Range = (0.0, 0.0)  # range of its rotation about the vertical, degrees
    lying: bool = False  # whether it lies on its side, with its axis along x

    @model_validator(mode="after")
    def _can_be_reached(self) -> "ObjectConfig":
        for name, (low, high) in (("x", self.x), ("y", self.y), ("yaw", self.yaw)):
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise ValueError(f"`{name}` is {[low, high]}: give a finite minimum and maximum")
        if self.carrier is not None:
            return self  # checked by `TaskConfig`
        ahead = min(max(0.0, self.y[0]), self.y[1])  # nearest to the axis in front of the robot
        distances = [math.hypot(x, y) for x in self.x for y in (*self.y, ahead)]
        if min(distances) < NEAREST or max(distances) > FARTHEST:
            raise ValueError(
                f"an unreachable pose: x {list(self.x)} and y {list(self.y)} are {min(distances):.2f} to "
                f"{max(distances):.2f} m from the robot's axis; keep within {NEAREST} to {FARTHEST} m"
            )
        return self

    @property
    def is_fixed(self) -> bool:
        """Whether it cannot be moved."""
        return isinstance(self.shape, shapes.Articulated | shapes.Painted)

    @property
    def footprint(self) -> float:
        """Radius (m) of a circle about its center that contains it, standing or lying."""
        x, y, z = self.shape.extent
        return math.hypot(z, max(x, y)) / 2 if self.lying else shapes.footprint(self.shape)


class ReachCriterion(Preset):
    """The grip site is within a distance (m) of an object's center."""

    kind: Literal["reach"]
    object: str
    within: float = Field(default=0.08, gt=0)


class LiftCriterion(Preset):
    """An object's lowest point is higher than initially by a height (m)."""

    kind: Literal["lift"]
    object: str
    by: float = Field(default=0.05, gt=0)


class OnCriterion(Preset):
    """An object lies on a target."""

    kind: Literal["on_top"]
    object: str
    target: str
    share: float = Field(default=0.8, gt=0, le=1)  # fraction of its outline that has to be over the target's
    let_go: bool = True  # whether the gripper has to be open
    for_s: float = Field(default=0.0, ge=0, le=5)  # how long this has to hold without interruption, s


class InsideCriterion(Preset):
    """An object is in a vessel: center over the opening, lowest point well below the rim, released."""

    kind: Literal["inside"]
    object: str
    target: str


class OpenedCriterion(Preset):
    """A drawer is open by a distance (m)."""

    kind: Literal["opened"]
    object: str
    by: float = Field(gt=0)


class UprightCriterion(Preset):
    """An object stands on the table, on either end, released."""

    kind: Literal["upright"]
    object: str


class StoppedCriterion(Preset):
    """A moving object has come to rest before crossing a line."""

    kind: Literal["stopped"]
    object: str
    line: str  # the line, which it must not have crossed
    moved: float = Field(default=0.1, gt=0)  # minimal distance (m) from its initial position
    slower: float = Field(default=0.02, gt=0)  # speed (m/s) below which it is at rest
    for_s: float = Field(default=0.5, ge=0, le=5)  # how long it has to be at rest, s


Criterion = Annotated[
    ReachCriterion
    | LiftCriterion
    | OnCriterion
    | InsideCriterion
    | OpenedCriterion
    | UprightCriterion
    | StoppedCriterion,
    Field(discriminator="kind"),
]


class OtherWordings(Preset):
    """The instruction in other words."""

    training: tuple[str, ...] = Field(min_length=1)
    held_out: tuple[str, ...] = Field(min_length=1)


class TaskConfig(Preset):
    """One task."""

    name: Name
    instruction: str = Field(min_length=1)
    wordings: OtherWordings
    objects: dict[Name, ObjectConfig] = Field(min_length=1)
    distractors: bool = True  # whether scene variation may add distractors
    # The success criteria. Each stays met once met; the task is solved when all have been met.
    rubric: tuple[Criterion, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _objects_fit_their_carriers(self) -> "TaskConfig":
        for name, obj in self.objects.items():
            if obj.carrier is None:
                continue
            if obj.carrier not in self.objects:
                raise unknown(f"`carrier` of object {name!r}:", obj.carrier, self.objects)
            shape = self.objects[obj.carrier].shape
            start = f"{name!r} is on {obj.carrier!r}, a {shape.kind}: "
            if not isinstance(shape, Machine):
                raise UsageError(f"{start}only a conveyor, turntable or ramp carries objects")
            if obj.is_fixed or obj.lying:
                raise UsageError(f"{start}a carried object must be movable and standing")
            if isinstance(shape, RampShape) and not isinstance(obj.shape, shapes.SphereShape):
                raise UsageError(f"{start}only a sphere rolls, not a {obj.shape.kind}")
            sides = zip((obj.x, obj.y), shape.extent, strict=False)
            if any(max(map(abs, span)) > side / 2 for span, side in sides):
                raise UsageError(f"{start}x {list(obj.x)} and y {list(obj.y)} are beside it; 0 is its center")
        return self

    @model_validator(mode="after")
    def _criteria_fit_their_objects(self) -> "TaskConfig":
        for each in self.rubric:
            name = getattr(each, "target", None) or getattr(each, "line", each.object)
            for named in (each.object, name):
                if named not in self.objects:
                    raise unknown(f"object in criterion `{each.kind}`:", named, self.objects)
            shape = self.objects[name].shape
            kind = shape.kind
            if isinstance(each, InsideCriterion) and not isinstance(shape, shapes.Vessel):
                raise UsageError(f"nothing can be inside {name!r}, a {kind}: take a bowl, mug or bin")
            if isinstance(each, StoppedCriterion) and not isinstance(shape, LineShape):
                raise UsageError(f"{name!r} is a {kind}: only a line can be crossed")
            if isinstance(each, OpenedCriterion):
                if not isinstance(shape, DrawerShape):
                    raise UsageError(f"{name!r} is a {kind}: only a drawer is opened")
                if (by := each.by) > shape.travel:
                    raise UsageError(f"{name!r} is to open by {by:g} m, its travel is {shape.travel:g} m")
        return self


def task_names() -> tuple[str, ...]:
    """Names of the built-in tasks."""
    files = (resources.files("sim_envs.droid") / "tasks").iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def load_task(name: str, folder: Path | None = None) -> TaskConfig:
    """Load a task by name, or from the YAML file at a path in a folder, else in the current one.

    A UsageError if there is no such task, or the file is invalid.
    """
    if name.endswith((".yaml", ".yml")):
        places = [absolute(name)] if folder is None else [folder / name, absolute(name)]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise UsageError(
                f"there is no task file {name}; give its path from the suite's file or the current folder"
            )
        text = read_text(path)
    elif name in task_names():
        text = (resources.files("sim_envs.droid") / "tasks" / f"{name}.yaml").read_text(encoding="utf-8")
    else:
        raise unknown("task", name, task_names(), remedy="Or give the path of a YAML file.")
    content = parse_yaml(text, f"task file {name}")
    if not isinstance(content, dict):
        raise UsageError(f"task file {name} holds {type(content).__name__}, not a mapping")
    return check(TaskConfig, content, source=f"task file {name}")


STORED = 50  # number of initial states that do not depend on the seed
FIRST_SAMPLED = 1000  # from this id on, states depend on the seed
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
    """Sample an initial state of a task; a UsageError if the objects' ranges leave too little room."""
    draws = random_stream(task, init_id=init_id, seed=seed)
    objects, crowded = task.objects, ("", "")
    for _ in range(_TRIES):
        placed = {}
        for name, obj in objects.items():
            x, y, yaw = (float(draws.uniform(*span)) for span in (obj.x, obj.y, obj.yaw))
            placed[name] = Placement(x=x, y=y, yaw=math.radians(yaw))
        placed |= {
            name: _carried(placed[name], placed[obj.carrier], obj, objects[obj.carrier])
            for name, obj in objects.items()
            if obj.carrier is not None
        }
        close = (
            (one, other)
            for one, other in itertools.combinations(objects, 2)
            if one != objects[other].carrier
            and other != objects[one].carrier
            and _room(objects[one], placed[one], objects[other], placed[other]) < _GAP
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
    x, y = place.x, place.y
    if isinstance(on.shape, RampShape):
        x, y, z = on.shape.seat(x, y, obj.shape.extent[0] / 2)
    else:
        z = on.shape.size[2] if isinstance(on.shape, ConveyorShape) else on.shape.height
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
