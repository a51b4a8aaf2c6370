"""Motions to a pose with any hand rotation, away from it, and waiting."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.scripted.clearance import Terrain
from sim_envs.scripted.gripper import FULLY_OPEN, hand_underside
from sim_envs.scripted.motion import GripperMotion, Waypoint
from sim_envs.scripted.poses import Pose, Vector3
from sim_envs.truth.ground_truth import Phase

_MARGIN = 0.03
"""Clearance (m) below the hand on its way."""

_CORNER = 0.015
_METRES_PER_STEP = 0.008
_RADIANS_PER_STEP = 0.04
_STEPS_TO_SPARE = 40


def reach(scene: ExpertScene, end: Pose, before: Pose, grip: float) -> GripperMotion:
    """Move above all obstacles to a pose in front of the part, then straight to the part."""
    start = scene.gripper
    terrain = Terrain(scene.surroundings(), start=start.position[:2], end=before.position[:2])
    shapes = [hand_underside(pose, FULLY_OPEN) for pose in (start, end)]
    height = max(terrain.lowest_along(shape) for shape in shapes) + _MARGIN
    height = max(height, before.position[2])
    path = (
        Waypoint(pose=start.at_height(max(start.position[2], height)), near=_CORNER, aligned=np.pi),
        Waypoint(pose=before.at_height(height), near=_CORNER, aligned=0.2),
        Waypoint(pose=before, near=0.01),
        Waypoint(pose=end, near=0.005),
    )
    return GripperMotion(phase=Phase.APPROACH, path=lambda: path, grip=grip, steps=time_for(start, path))


def leave(scene: ExpertScene, way: Vector3, grip: float) -> GripperMotion:
    """Move away by a vector (m), keeping the rotation."""
    start = scene.gripper
    path = (Waypoint(pose=start.shifted(way), near=_CORNER, aligned=np.pi),)
    return GripperMotion(phase=Phase.RETREAT, path=lambda: path, grip=grip, steps=time_for(start, path))


def stay(scene: ExpertScene, phase: Phase, grip: float, steps: int) -> GripperMotion:
    """Hold still for some control steps while the fingers open or close."""
    return GripperMotion(phase=phase, path=here(scene), grip=grip, steps=steps, dwell=steps)


def here(scene: ExpertScene) -> Callable[[], Sequence[Waypoint]]:
    """A path that stays at the gripper's current pose."""
    path = (Waypoint(pose=scene.gripper, near=np.inf, aligned=np.inf),)
    return lambda: path


def time_for(start: Pose, path: Sequence[Waypoint]) -> int:
    """Time limit of a path in control steps: twice the expected time, plus a constant."""
    stops = [start, *(waypoint.pose for waypoint in path)]
    twists = [one.twist_to(other) for one, other in itertools.pairwise(stops)]
    steps = sum(
        max(np.linalg.norm(twist[:3]) / _METRES_PER_STEP, np.linalg.norm(twist[3:]) / _RADIANS_PER_STEP)
        for twist in twists
    )
    return round(2 * float(steps)) + _STEPS_TO_SPARE
