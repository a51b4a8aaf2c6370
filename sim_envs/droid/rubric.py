"""The rubric of a task: which of its criteria have been reached. Each is kept once reached."""

import dataclasses
from collections.abc import Mapping

import mujoco
import numpy as np
from jaxtyping import Float64

from sim_envs.droid.robot import GRIP_SITE
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

_OPEN = 0.1
"""The gripper counts as open below this."""

_RESTING = 0.012
"""An object rests on a target if its underside is so close (m) to the target's top."""

_ROUNDING = 1e-6
"""Seconds that a sum of time steps may be off."""

_UPRIGHT = 0.95
"""Cosine of the tilt up to which something stands upright."""

_BELOW_RIM = 0.35
"""Share of a vessel's depth that the lowest point of what is inside must be below the rim."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectPose:
    """An object as it is now.

    Attributes:
        position: The middle of its underside in its own frame, in the world, m.
        rotation: Its axes, as columns.
        low: The least corner of its bounding box in the world, m.
        high: The greatest.
        corners: Of its box in its own frame, in the world, m.
    """

    position: Float64[np.ndarray, " 3"]
    rotation: Float64[np.ndarray, "3 3"]
    low: Float64[np.ndarray, " 3"]
    high: Float64[np.ndarray, " 3"]
    corners: Float64[np.ndarray, "8 3"]

    @property
    def middle(self) -> Float64[np.ndarray, " 3"]:
        """The middle of its bounding box, m."""
        return (self.low + self.high) / 2

    @property
    def is_upright(self) -> bool:
        """Whether its axis is vertical, either end up."""
        return bool(abs(self.rotation[2, 2]) > _UPRIGHT)


class Rubric:
    """Judges one episode after another of a task; reads the simulation, changes nothing in it.

    Attributes:
        data: The simulation that it reads.
    """

    def __init__(self, task: TaskConfig, data: mujoco.MjData) -> None:
        """Judge what happens in `data`, of the task's own scene."""
        self._task, self.data = task, data
        self._reached = [False] * len(task.rubric)
        self._since: list[float | None] = [None] * len(task.rubric)
        self._start: Mapping[str, ObjectPose] = {}

    def begin(self) -> None:
        """Start an episode from the state that the simulation is in."""
        self._reached = [False] * len(self._task.rubric)
        self._since = [None] * len(self._task.rubric)
        self._start = {name: self.pose(name) for name in self._task.objects}

    def judge(self, gripper: float) -> bool:
        """Look at the simulation once more.

        Args:
            gripper: 0 open, 1 closed.

        Returns:
            Whether all criteria have been reached.
        """
        for number, criterion in enumerate(self._task.rubric):
            self._reached[number] = self._reached[number] or self._lasts(number, criterion, gripper)
        return all(self._reached)

    @property
    def reached(self) -> tuple[bool, ...]:
        """Of every criterion whether it has been reached."""
        return tuple(self._reached)

    @property
    def progress(self) -> float:
        """The share of the criteria that have been reached."""
        return sum(self._reached) / len(self._reached)

    def pose(self, name: str) -> ObjectPose:
        """An object as it is now."""
        body = self.data.body(name)
        rotation = body.xmat.reshape(3, 3).copy()
        points = body.xpos + corners(self._task.objects[name].shape) @ rotation.T
        return ObjectPose(
            position=body.xpos.copy(),
            rotation=rotation,
            low=points.min(axis=0),
            high=points.max(axis=0),
            corners=points,
        )

    def _lasts(self, number: int, criterion: Criterion, gripper: float) -> bool:
        """Whether a criterion holds, and has held as long as it is to."""
        if not self.holds(criterion, gripper):
            self._since[number] = None
            return False
        since = self._since[number]
        if since is None:
            since = self._since[number] = self.data.time
        lasting = criterion.for_s if isinstance(criterion, OnCriterion | StoppedCriterion) else 0.0
        return self.data.time - since > lasting - _ROUNDING

    def holds(self, criterion: Criterion, gripper: float) -> bool:
        """Whether a criterion is met at this moment; gripper as for `judge`."""
        match criterion:
            case ReachCriterion():
                return self._distance(criterion.object) < criterion.within
            case LiftCriterion():
                return self._risen(criterion.object) > criterion.by
            case OpenedCriterion():
                return float(self.data.joint(slide_joint(criterion.object)).qpos[0]) >= criterion.by
            case OnCriterion(let_go=False) | StoppedCriterion():
                return self.is_placed(criterion)
            case _:
                return gripper < _OPEN and self.is_placed(criterion)

    def is_placed(
        self, criterion: OnCriterion | InsideCriterion | UprightCriterion | StoppedCriterion
    ) -> bool:
        """Whether an object is now where a criterion would have it, let go or not."""
        match criterion:
            case StoppedCriterion():
                return self._is_stopped(criterion)
            case OnCriterion():
                return self._rests(criterion)
            case InsideCriterion():
                return self._is_inside(criterion)
            case _:
                return self._stands(criterion.object)

    def _distance(self, name: str) -> float:
        return float(np.linalg.norm(self.data.site(GRIP_SITE).xpos - self.pose(name).middle))

    def _risen(self, name: str) -> float:
        return float(self.pose(name).position[2] - self._start[name].position[2])

    def _rests(self, criterion: OnCriterion) -> bool:
        return rests(self.pose(criterion.object), self.pose(criterion.target), criterion.share)

    def _is_stopped(self, criterion: StoppedCriterion) -> bool:
        line, start = self.pose(criterion.line), self._start[criterion.object].middle
        now = self.pose(criterion.object).middle
        ahead = [float(line.rotation[:, 0] @ (middle - line.position)) for middle in (start, now)]
        model, velocity = self.data.model, np.zeros(6)
        body = self.data.body(criterion.object).id
        mujoco.mj_objectVelocity(model, self.data, mujoco.mjtObj.mjOBJ_BODY, body, velocity, 0)
        is_slow = np.linalg.norm(velocity[3:]) < criterion.slower
        has_come = np.linalg.norm(now - start) > criterion.moved
        return bool(is_slow and has_come and ahead[0] * ahead[1] > 0)

    def _is_inside(self, criterion: InsideCriterion) -> bool:
        shape = self._task.objects[criterion.target].shape
        assert isinstance(shape, Vessel)
        return is_inside(self.pose(criterion.object), self.pose(criterion.target), shape)

    def _stands(self, name: str) -> bool:
        pose = self.pose(name)
        return bool(pose.is_upright and abs(pose.low[2]) < _RESTING)


def rests(one: ObjectPose, target: ObjectPose, share: float) -> bool:
    """Whether one lies on a target, with at least that share of its outline over the target's."""
    at_its_height = abs(float(one.low[2] - target.high[2])) < _RESTING
    return at_its_height and overlap(one, target) >= share


def overlap(one: ObjectPose, target: ObjectPose) -> float:
    """The share of one's outline, seen from above as a box along the target's sides, that is over it."""
    own, others = (points @ target.rotation for points in (target.corners, one.corners))
    low, high = others.min(axis=0), others.max(axis=0)
    sides = np.minimum(high, own.max(axis=0))[:2] - np.maximum(low, own.min(axis=0))[:2]
    return float(np.prod(np.maximum(sides, 0)) / np.prod((high - low)[:2]))


def is_inside(one: ObjectPose, target: ObjectPose, vessel: Vessel) -> bool:
    """Whether one is in an upright vessel: its middle over the opening, its lowest point below the rim."""
    if target.rotation[2, 2] < _UPRIGHT:
        return False
    opening = vessel.opening
    middle = target.rotation.T @ (one.middle - target.position)
    half = np.array(opening.half)
    over = np.linalg.norm(middle[:2]) < half[0] if opening.round else bool((abs(middle[:2]) < half).all())
    depth = opening.rim - opening.floor
    lowest = float(one.low[2] - target.position[2])
    return bool(over) and lowest < opening.rim - _BELOW_RIM * depth
