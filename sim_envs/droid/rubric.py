"""Evaluates a task's success criteria. A criterion stays met once it has been met."""

import dataclasses
from collections.abc import Mapping

import mujoco
import numpy as np
from jaxtyping import Float64

from sim_envs.droid.control import GRIP_SITE
from sim_envs.droid.scene import slide_joint
from sim_envs.droid.shapes import Vessel, corners
from sim_envs.droid.task_file import (
    Criterion,
    InsideCriterion,
    LiftCriterion,
    OnCriterion,
    OpenedCriterion,
    ReachCriterion,
    StoppedCriterion,
    TaskConfig,
    UprightCriterion,
)
from sim_envs.scripted.poses import Pose

_OPEN = 0.1
"""The gripper counts as open below this."""

_RESTING = 0.012
"""An object rests on a target if its underside is within this distance (m) of the target's top."""

_ROUNDING = 1e-6
"""Tolerance (s) of summed time steps."""

_UPRIGHT = 0.95
"""Minimal cosine of the tilt of an upright object."""

_BELOW_RIM = 0.35
"""An object is inside a vessel if its lowest point is below the rim by this fraction of the depth."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectPose(Pose):
    """The pose of an object, whose origin is the center of its underside, and its bounds.

    Attributes:
        low: Lower corner of its axis-aligned bounding box, m.
        high: Upper corner of it, m.
        corners: Corners of its oriented bounding box, m.
    """

    low: Float64[np.ndarray, " 3"]
    high: Float64[np.ndarray, " 3"]
    corners: Float64[np.ndarray, "8 3"]

    @property
    def middle(self) -> Float64[np.ndarray, " 3"]:
        """Center of its axis-aligned bounding box, m."""
        return (self.low + self.high) / 2

    @property
    def is_upright(self) -> bool:
        """Whether its axis is vertical, either end up."""
        return bool(abs(self.rotation[2, 2]) > _UPRIGHT)


class Rubric:
    """Evaluates the criteria of a task. Only reads the simulation.

    Attributes:
        data: The simulation state.
    """

    def __init__(self, task: TaskConfig, data: mujoco.MjData) -> None:
        """Evaluate the task in `data`, the state of its scene."""
        self._task, self.data = task, data
        self._reached = [False] * len(task.rubric)
        self._since: list[float | None] = [None] * len(task.rubric)
        self._start: Mapping[str, ObjectPose] = {}

    def begin(self) -> None:
        """Start an episode from the current state."""
        self._reached = [False] * len(self._task.rubric)
        self._since = [None] * len(self._task.rubric)
        self._start = {name: self.pose(name) for name in self._task.objects}

    def judge(self, gripper: float) -> bool:
        """Evaluate the criteria after a control step.

        Args:
            gripper: 0 open, 1 closed.

        Returns:
            Whether all criteria have been met.
        """
        for number, criterion in enumerate(self._task.rubric):
            if self._reached[number]:
                continue
            if not self.holds(criterion, gripper):
                self._since[number] = None
                continue
            since = self._since[number]
            if since is None:
                since = self._since[number] = self.data.time
            lasting = criterion.for_s if isinstance(criterion, OnCriterion | StoppedCriterion) else 0.0
            self._reached[number] = self.data.time - since > lasting - _ROUNDING
        return all(self._reached)

    @property
    def reached(self) -> tuple[bool, ...]:
        """Whether each criterion has been met."""
        return tuple(self._reached)

    @property
    def progress(self) -> float:
        """Fraction of the criteria that have been met."""
        return sum(self._reached) / len(self._reached)

    def pose(self, name: str) -> ObjectPose:
        """The current pose of an object."""
        pose = Pose.of(self.data.body(name))
        points = pose.to_world(corners(self._task.objects[name].shape))
        return ObjectPose(**vars(pose), low=points.min(axis=0), high=points.max(axis=0), corners=points)

    def holds(self, criterion: Criterion, gripper: float) -> bool:
        """Whether a criterion holds now; `gripper` as for `judge`."""
        match criterion:
            case ReachCriterion():
                way = self.data.site(GRIP_SITE).xpos - self.pose(criterion.object).middle
                return float(np.linalg.norm(way)) < criterion.within
            case LiftCriterion():
                start = self._start[criterion.object].position[2]
                return float(self.pose(criterion.object).position[2] - start) > criterion.by
            case OpenedCriterion():
                return float(self.data.joint(slide_joint(criterion.object)).qpos[0]) >= criterion.by
            case OnCriterion(let_go=False) | StoppedCriterion():
                return self.is_placed(criterion)
            case _:
                return gripper < _OPEN and self.is_placed(criterion)

    def is_placed(
        self, criterion: OnCriterion | InsideCriterion | UprightCriterion | StoppedCriterion
    ) -> bool:
        """Whether an object is where a criterion requires it, released or not."""
        match criterion:
            case StoppedCriterion():
                line, start = self.pose(criterion.line), self._start[criterion.object].middle
                now, velocity = self.pose(criterion.object).middle, np.zeros(6)
                ahead = [float(line.rotation[:, 0] @ (middle - line.position)) for middle in (start, now)]
                body, kind = self.data.body(criterion.object).id, mujoco.mjtObj.mjOBJ_BODY
                mujoco.mj_objectVelocity(self.data.model, self.data, kind, body, velocity, 0)
                is_slow = np.linalg.norm(velocity[3:]) < criterion.slower
                has_come = np.linalg.norm(now - start) > criterion.moved
                return bool(is_slow and has_come and ahead[0] * ahead[1] > 0)
            case OnCriterion():
                return rests(self.pose(criterion.object), self.pose(criterion.target), criterion.share)
            case InsideCriterion():
                shape = self._task.objects[criterion.target].shape
                assert isinstance(shape, Vessel)
                return is_inside(self.pose(criterion.object), self.pose(criterion.target), shape)
            case _:
                pose = self.pose(criterion.object)
                return bool(pose.is_upright and abs(pose.low[2]) < _RESTING)


def rests(one: ObjectPose, target: ObjectPose, share: float) -> bool:
    """Whether one object rests on another, with at least this fraction of its outline over the target's."""
    at_its_height = abs(float(one.low[2] - target.high[2])) < _RESTING
    return at_its_height and overlap(one, target) >= share


def overlap(one: ObjectPose, target: ObjectPose) -> float:
    """Fraction of an object's outline above the target's, as boxes along the target's sides."""
    own, others = (points @ target.rotation for points in (target.corners, one.corners))
    low, high = others.min(axis=0), others.max(axis=0)
    sides = np.minimum(high, own.max(axis=0))[:2] - np.maximum(low, own.min(axis=0))[:2]
    return float(np.prod(np.maximum(sides, 0)) / np.prod((high - low)[:2]))


def is_inside(one: ObjectPose, target: ObjectPose, vessel: Vessel) -> bool:
    """Whether an object is in an upright vessel: center above the opening, lowest point below the rim."""
    if target.rotation[2, 2] < _UPRIGHT:
        return False
    opening = vessel.opening
    middle = target.rotation.T @ (one.middle - target.position)
    half = np.array(opening.half)
    over = np.linalg.norm(middle[:2]) < half[0] if opening.round else bool((abs(middle[:2]) < half).all())
    depth = opening.rim - opening.floor
    lowest = float(one.low[2] - target.position[2])
    return bool(over) and lowest < opening.rim - _BELOW_RIM * depth
