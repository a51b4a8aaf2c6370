"""The vocabulary of skills: phases, waypoints, and motions of the gripper with a reason to end."""

import dataclasses
import enum
from collections.abc import Callable, Generator, Sequence

import numpy as np

from sim_envs.scripted.poses import Pose, Vector3
from sim_envs.truth.ground_truth import Phase

OPEN, CLOSED = -1.0, 1.0
"""Gripper commands of LIBERO's action space."""


class MotionOutcome(enum.Enum):
    """Why a motion ended."""

    REACHED = enum.auto()
    INTERRUPTED = enum.auto()
    STUCK = enum.auto()
    TIMEOUT = enum.auto()


PredictedMotion = Callable[[float], Vector3]
"""How far (m) something that moves will have come after so many seconds from now."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waypoint:
    """A pose of the grip site to come by.

    Attributes:
        pose: In the world, now.
        near: How close (m) is close enough.
        aligned: How well turned (rad) is well enough.
        ahead: How the pose moves on; None if it stays.
    """

    pose: Pose
    near: float = 0.006
    aligned: float = 0.1
    ahead: PredictedMotion | None = None

    def after(self, seconds: float) -> "Waypoint":
        """Where it will be."""
        if self.ahead is None:
            return self
        return dataclasses.replace(self, pose=self.pose.shifted(self.ahead(seconds)))

    def velocity_after(self, seconds: float, *, over: float) -> Vector3 | None:
        """How fast (m/s) it will then be in the mean, over some seconds; None if it stays."""
        return None if self.ahead is None else (self.ahead(seconds + over) - self.ahead(seconds)) / over

    def reached_by(self, pose: Pose) -> bool:
        """Whether the grip site is close enough and turned well enough."""
        twist = pose.twist_to(self.pose)
        return bool(np.linalg.norm(twist[:3]) <= self.near and np.linalg.norm(twist[3:]) <= self.aligned)


def progress(path: Sequence[Waypoint], pose: Pose, passed: int) -> int:
    """How many waypoints are behind a gripper that had `passed` some before."""
    while passed < len(path) and path[passed].reached_by(pose):
        passed += 1
    return passed


@dataclasses.dataclass(frozen=True, kw_only=True)
class GripperMotion:
    """A path of the gripper, followed until its end is reached, something interrupts it, or time is up.

    Attributes:
        phase: What it is for.
        path: The waypoints, read anew at each query, so that they follow what moves; always as many.
        grip: Command to the fingers.
        steps: Control steps after which it is given up.
        dwell: Control steps to stay at the end of the path.
        interrupted: Looked at at each query; true ends the motion at once.
        finished: Looked at at each query once the path's end is reached; true ends the dwelling early.
    """

    phase: Phase
    path: Callable[[], Sequence[Waypoint]]
    grip: float
    steps: int
    dwell: int = 0
    interrupted: Callable[[], bool] = lambda: False
    finished: Callable[[], bool] = lambda: False


Skill = Generator[GripperMotion, MotionOutcome, None]
"""A skill yields motions and is sent the outcome of each; between two of them it may look at the scene."""
