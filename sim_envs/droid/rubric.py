"""Evaluates a task's success criteria. A criterion stays met once it has been met."""

import mujoco
import numpy as np

from sim_envs.droid.shapes import DRAWER, Vessel, depth
from sim_envs.droid.station import UPRIGHT, ObjectPose, Station, part_name
from sim_envs.droid.task_file import (
    Criterion,
    InsideCriterion,
    LiftCriterion,
    OnCriterion,
    OpenedCriterion,
    ReachCriterion,
    StoppedCriterion,
    UprightCriterion,
)

_OPEN = 0.1  # the gripper counts as open below this
_RESTING = 0.012  # an object rests on a target if its underside is this near (m) to the target's top
_ROUNDING = 1e-6  # tolerance (s) of summed time steps
_BELOW_RIM = 0.35  # what is in a vessel is below the rim by at least this fraction of the depth


class Rubric:
    """Evaluates the criteria of a station's task. Only reads the simulation.

    Attributes:
        station: The station.
    """

    def __init__(self, station: Station) -> None:
        self.station, self._criteria = station, station.task.rubric
        self.begin()

    def begin(self) -> None:
        """Start an episode from the current state."""
        self._reached = [False] * len(self._criteria)
        self._since: list[float | None] = [None] * len(self._criteria)
        self._start = {name: self.station.pose(name) for name in self.station.task.objects}

    def judge(self) -> bool:
        """Evaluate the criteria after a control step. Returns whether all have been met."""
        now = self.station.data.time
        for number, criterion in enumerate(self._criteria):
            if self._reached[number]:
                continue
            if not self.holds(criterion):
                self._since[number] = None
                continue
            since = self._since[number]
            if since is None:
                since = self._since[number] = now
            lasting = criterion.for_s if isinstance(criterion, OnCriterion | StoppedCriterion) else 0.0
            self._reached[number] = now - since > lasting - _ROUNDING
        return all(self._reached)

    @property
    def reached(self) -> tuple[bool, ...]:
        """Whether each criterion has been met."""
        return tuple(self._reached)

    @property
    def progress(self) -> float:
        """Fraction of the criteria that have been met."""
        return sum(self._reached) / len(self._reached)

    def holds(self, criterion: Criterion) -> bool:
        """Whether a criterion holds now."""
        station = self.station
        match criterion:
            case ReachCriterion():
                way = station.end_effector - station.pose(criterion.object).middle
                return float(np.linalg.norm(way)) < criterion.within
            case LiftCriterion():
                start = self._start[criterion.object].low[2]
                return float(station.pose(criterion.object).low[2] - start) > criterion.by
            case OpenedCriterion():
                return float(station.data.joint(part_name(criterion.object, DRAWER)).qpos[0]) >= criterion.by
            case OnCriterion(let_go=False) | StoppedCriterion():
                return self.is_placed(criterion)
            case _:
                return station.gripper < _OPEN and self.is_placed(criterion)

    def is_placed(
        self, criterion: OnCriterion | InsideCriterion | UprightCriterion | StoppedCriterion
    ) -> bool:
        """Whether an object is where a criterion requires it, released or not."""
        data, obj = self.station.data, self.station.pose(criterion.object)
        match criterion:
            case StoppedCriterion():
                line, start = self.station.pose(criterion.line), self._start[criterion.object].middle
                ahead = [float(line.rotation[:, 0] @ (at - line.position)) for at in (start, obj.middle)]
                body, velocity = data.body(criterion.object).id, np.zeros(6)
                mujoco.mj_objectVelocity(data.model, data, mujoco.mjtObj.mjOBJ_BODY, body, velocity, 0)
                is_slow = np.linalg.norm(velocity[3:]) < criterion.slower
                has_come = np.linalg.norm(obj.middle - start) > criterion.moved
                return bool(is_slow and has_come and ahead[0] * ahead[1] > 0)
            case OnCriterion():
                return rests(obj, self.station.pose(criterion.target), criterion.share)
            case InsideCriterion():
                shape = self.station.task.objects[criterion.target].shape
                assert isinstance(shape, Vessel)
                return is_inside(obj, self.station.pose(criterion.target), shape)
            case UprightCriterion():
                return bool(obj.is_upright and abs(obj.low[2]) < _RESTING)


def rests(one: ObjectPose, target: ObjectPose, share: float) -> bool:
    """Whether one object rests on another, with at least this fraction of its outline over the target's.

    Outlines are boxes along the target's sides.
    """
    own, others = (points @ target.rotation for points in (target.corners, one.corners))
    low, high = others.min(axis=0), others.max(axis=0)
    sides = np.minimum(high, own.max(axis=0))[:2] - np.maximum(low, own.min(axis=0))[:2]
    overlap = float(np.prod(np.maximum(sides, 0)) / np.prod((high - low)[:2]))
    return abs(float(one.low[2] - target.high[2])) < _RESTING and overlap >= share


def is_inside(one: ObjectPose, target: ObjectPose, vessel: Vessel) -> bool:
    """Whether an object is in an upright vessel: center above the opening, lowest point below the rim."""
    if target.rotation[2, 2] < UPRIGHT:
        return False
    middle = target.rotation.T @ (one.middle - target.position)
    lowest = float(one.low[2] - target.position[2])
    return vessel.is_over(middle[:2]) and lowest < vessel.extent[2] - _BELOW_RIM * depth(vessel)
