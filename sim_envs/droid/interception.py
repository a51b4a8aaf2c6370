"""Predicts the motion of carried objects, and how long the expert's arm takes to reach them."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from sim_envs.droid.control import GRIPPER_SPEED, Joints
from sim_envs.droid.machines import ConveyorShape, RampShape, TurntableShape
from sim_envs.droid.robot import GRIPPER_STROKE
from sim_envs.droid.rubric import Rubric
from sim_envs.droid.station import Station
from sim_envs.scripted.poses import Vector3

FASTEST = 0.9
"""Maximal joint velocity (rad/s) of the expert."""

_PASSING, _SETTLING = 0.2, 1.0
"""Seconds added to the joints' travel time at full speed: per waypoint, and once."""

_STEP, _WITHIN = 0.25, 12.0
"""Spacing of candidate interception times, and their range (s)."""

_OFF = 0.005
"""An object this far (m) below its carrier's surface is no longer carried."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CarrierMotion:
    """Motion of an object on its carrier.

    Attributes:
        velocity: m/s.
        rate: Rotation about a vertical axis, rad/s.
        axis: A point of that axis, m.
    """

    velocity: Vector3
    rate: float
    axis: Vector3

    @property
    def at_rest(self) -> bool:
        """Whether the object is at rest."""
        return not self.velocity.any() and self.rate == 0

    def after(self, point: Vector3, seconds: float) -> Vector3:
        """The position (m) of a point of the object after some seconds."""
        cos, sin = math.cos(self.rate * seconds), math.sin(self.rate * seconds)
        turned = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
        return self.axis + turned @ (point - self.axis) + seconds * self.velocity

    def velocity_at(self, point: Vector3) -> Vector3:
        """Velocity (m/s) of a point of the object."""
        return self.velocity + self.rate * np.array([self.axis[1] - point[1], point[0] - self.axis[0], 0.0])

    def times(self, earliest: float) -> Sequence[float]:
        """Candidate interception times, in seconds from now; only the earliest if it is at rest."""
        return (earliest,) if self.at_rest else tuple(np.arange(earliest, earliest + _WITHIN, _STEP))


def carrier_motion(station: Station, name: str) -> CarrierMotion:
    """The motion of an object at its carrier's nominal speed, which the drive reaches in milliseconds."""
    still = CarrierMotion(velocity=np.zeros(3), rate=0.0, axis=np.zeros(3))
    carrier = station.task.objects[name].carrier
    if carrier is None:
        return still
    rubric, shape = Rubric(station.task, station.data), station.task.objects[carrier].shape
    pose = rubric.pose(carrier)
    below = rubric.pose(name).low[2]
    match shape:
        case ConveyorShape() if below > shape.size[2] - _OFF:
            return dataclasses.replace(still, velocity=shape.speed * pose.rotation[:, 0])
        case TurntableShape() if below > shape.height - _OFF:
            return dataclasses.replace(still, rate=math.radians(shape.turn_rate), axis=pose.position)
        case _:
            return still


def ramp_exit(station: Station, name: str) -> tuple[Vector3, Vector3]:
    """The point (m) and direction in which an object leaves its ramp."""
    carrier = station.task.objects[name].carrier
    assert carrier is not None
    shape = station.task.objects[carrier].shape
    assert isinstance(shape, RampShape)
    pose = Rubric(station.task, station.data).pose(carrier)
    way = pose.rotation[:, 0]
    return pose.position + way * shape.size[0] / 2, way


def closing_time(width: float) -> float:
    """Seconds until the closing gripper touches an object of a width (m)."""
    return max(0.0, 1 - width / GRIPPER_STROKE) / GRIPPER_SPEED


def duration(path: Sequence[Joints]) -> float:
    """Estimated duration (s) of a path of joint positions (rad), starting at the current ones."""
    ways = [float(np.abs(after - before).max()) for before, after in itertools.pairwise(path)]
    return sum(ways) / FASTEST + len(ways) * _PASSING + _SETTLING
