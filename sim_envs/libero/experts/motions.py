"""Motions of the hand: along a path, to a pose with any rotation, away from it, and waiting."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.moving import PredictedMotion
from sim_envs.scripted.gripper import FULLY_OPEN, Terrain, hand_underside
from sim_envs.scripted.poses import Pose, Vector3
from sim_envs.truth.ground_truth import Phase

OPEN, CLOSED = -1.0, 1.0
"""Gripper commands of LIBERO's action space."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waypoint:
    """A pose for the grip site to pass through."""

    pose: Pose  # current pose in the world
    near: float = 0.006  # position tolerance (m)
    aligned: float = 0.1  # rotation tolerance (rad)
    ahead: PredictedMotion | None = None  # predicted motion of the pose; None if it is fixed

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
        return pose.is_within(self.pose, self.near, self.aligned)


def progress(path: Sequence[Waypoint], pose: Pose, passed: int) -> int:
    """The number of passed waypoints, given that `passed` were passed before."""
    while passed < len(path) and path[passed].reached_by(pose):
        passed += 1
    return passed


@dataclasses.dataclass(frozen=True, kw_only=True)
class GripperMotion:
    """A gripper path, followed until its end, an interruption, or a time limit."""

    phase: Phase
    # Called at each query, so that waypoints follow moving objects; their number must not change.
    path: Callable[[], Sequence[Waypoint]]
    grip: float  # gripper command
    steps: int  # time limit in control steps
    dwell: int = 0  # control steps to stay at the end of the path
    interrupted: Callable[[], bool] = lambda: False  # checked at each query; true ends the motion at once
    # Checked at each query at the end of the path; true ends the dwell early.
    finished: Callable[[], bool] = lambda: False


Skill = Iterator[GripperMotion]
"""A skill yields motions; it continues when one has ended, and may read the scene in between."""

CORNER = 0.015
"""Position tolerance (m) of waypoints on the way; less than the clearances below the hand."""

METRES_PER_STEP = 0.012
_FAST = (METRES_PER_STEP, np.inf, 30)
_CAREFUL = (0.008, 0.04, 40)
"""Expected metres and radians per control step, and steps to spare, of time limits."""

_MARGIN = 0.03  # clearance (m) below the hand on its way to a part

Path = Sequence[Waypoint]


def move(
    scene: ExpertScene,
    phase: Phase,
    path: Path | Callable[[], Path],
    grip: float,
    *,
    holding: str = "",
    pace: tuple[float, float, int] = _FAST,
) -> GripperMotion:
    """Follow a path; dropping the object `holding` ends the motion."""
    waypoints = path if callable(path) else lambda: path
    return GripperMotion(
        phase=phase,
        path=waypoints,
        grip=grip,
        steps=time_for(scene.gripper, waypoints(), pace),
        interrupted=lambda: bool(holding) and not holds(scene, holding),
    )


def reach(scene: ExpertScene, end: Pose, before: Pose, grip: float) -> GripperMotion:
    """Move above all obstacles to a pose in front of the part, then straight to the part."""
    start = scene.gripper
    terrain = Terrain(scene.surroundings(), start=start.position[:2], end=before.position[:2])
    shapes = [hand_underside(pose, FULLY_OPEN) for pose in (start, end)]
    height = max(terrain.lowest_along(shape) for shape in shapes) + _MARGIN
    height = max(height, before.position[2])
    path = (
        Waypoint(pose=start.at_height(max(start.position[2], height)), near=CORNER, aligned=np.pi),
        Waypoint(pose=before.at_height(height), near=CORNER, aligned=0.2),
        Waypoint(pose=before, near=0.01),
        Waypoint(pose=end, near=0.005),
    )
    return move(scene, Phase.APPROACH, path, grip, pace=_CAREFUL)


def leave(scene: ExpertScene, way: Vector3, grip: float) -> GripperMotion:
    """Move away by a vector (m), keeping the rotation."""
    path = (Waypoint(pose=scene.gripper.shifted(way), near=CORNER, aligned=np.pi),)
    return move(scene, Phase.RETREAT, path, grip, pace=_CAREFUL)


def stay(scene: ExpertScene, phase: Phase, grip: float, steps: int) -> GripperMotion:
    """Hold still for some control steps while the fingers open or close."""
    path = (Waypoint(pose=scene.gripper, near=np.inf, aligned=np.inf),)
    return GripperMotion(phase=phase, path=lambda: path, grip=grip, steps=steps, dwell=steps)


def holds(scene: ExpertScene, obj: str) -> bool:
    """Whether both fingers touch an object."""
    return scene.fingers_touching(obj) == 2


def time_for(start: Pose, path: Path, pace: tuple[float, float, int] = _CAREFUL) -> int:
    """Time limit of a path in control steps: twice the expected time, plus a constant."""
    metres, radians, spare = pace
    stops = [start, *(waypoint.pose for waypoint in path)]
    twists = [one.twist_to(other) for one, other in itertools.pairwise(stops)]
    steps = sum(
        max(np.linalg.norm(twist[:3]) / metres, np.linalg.norm(twist[3:]) / radians) for twist in twists
    )
    return round(2 * float(steps)) + spare
