"""Building blocks of skills: waypoints and gripper motions."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sim_envs.scripted.poses import Pose, Vector3
from sim_envs.truth.ground_truth import Phase

OPEN, CLOSED = -1.0, 1.0
"""Gripper commands of LIBERO's action space."""


PredictedMotion = Callable[[float], Vector3]
"""Displacement (m) of a moving object after a number of seconds from now."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waypoint:
    """A pose for the grip site to pass through.

    Attributes:
        pose: Current pose in the world.
        near: Position tolerance (m).
        aligned: Rotation tolerance (rad).
        ahead: Predicted motion of the pose; None if it is fixed.
    """

    pose: Pose
    near: float = 0.006
    aligned: float = 0.1
    ahead: PredictedMotion | None = None

    def after(self, seconds: float) -> "Waypoint":
        """The waypoint after some seconds."""
        if self.ahead is None:
            return self
        return dataclasses.replace(self, pose=self.pose.shifted(self.ahead(seconds)))

    def velocity_after(self, seconds: float, *, over: float) -> Vector3 | None:
        """Mean velocity (m/s) over some seconds from then; None if it is fixed."""
        return None if self.ahead is None else (self.ahead(seconds + over) - self.ahead(seconds)) / over

    def reached_by(self, pose: Pose) -> bool:
        """Whether a pose of the grip site is within both tolerances."""
        twist = pose.twist_to(self.pose)
        return bool(np.linalg.norm(twist[:3]) <= self.near and np.linalg.norm(twist[3:]) <= self.aligned)


def progress(path: Sequence[Waypoint], pose: Pose, passed: int) -> int:
    """The number of passed waypoints, given that `passed` were passed before."""
    while passed < len(path) and path[passed].reached_by(pose):
        passed += 1
    return passed


@dataclasses.dataclass(frozen=True, kw_only=True)
class GripperMotion:
    """A gripper path, followed until its end, an interruption, or a time limit.

    Attributes:
        phase: The phase it belongs to.
        path: Returns the waypoints, called at each query so that they follow moving objects; their number
            must not change.
        grip: Gripper command.
        steps: Time limit in control steps.
        dwell: Control steps to stay at the end of the path.
        interrupted: Checked at each query; true ends the motion at once.
        finished: Checked at each query at the end of the path; true ends the dwell early.
    """

    phase: Phase
    path: Callable[[], Sequence[Waypoint]]
    grip: float
    steps: int
    dwell: int = 0
    interrupted: Callable[[], bool] = lambda: False
    finished: Callable[[], bool] = lambda: False


Skill = Iterator[GripperMotion]
"""A skill yields motions; it continues when one has ended, and may read the scene in between."""
