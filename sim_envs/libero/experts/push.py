"""The skill to slide a flat object over the table, with closed fingers pressed on its inside."""

from collections.abc import Sequence

import numpy as np

from sim_envs.libero.experts.reaching import leave, reach
from sim_envs.libero.experts.scene import ExpertScene, Goal
from sim_envs.scripted.clearance import XY
from sim_envs.scripted.gripper import PANDA, downward
from sim_envs.scripted.motion import CLOSED, GripperMotion, Skill, Waypoint
from sim_envs.scripted.poses import Pose, Vector3
from sim_envs.truth.ground_truth import Phase

_FLAT = 0.035
"""Objects lower than this (m) have no wall to grasp."""

_PRESS = 0.008
"""Commanded depth (m) of the fingertips below the inside of the object, so that it moves along."""

_CLOSE_ENOUGH = 0.008
"""Distance (m) from the target at which sliding ends."""

_AHEAD = 0.025
"""Commanded lead (m) of the fingers: small enough that they do not climb a rim."""

_SLIPPED = 0.07
"""Distance (m) from the object's center beyond which the fingers have slipped off."""

_STEPS = 200
"""Control steps after which sliding starts again."""

_MIDDLE = 0.02
"""Radius (m) around the object's center in which its inside is searched."""

_UP = 0.08


def is_pushed(scene: ExpertScene, goal: Goal) -> bool:
    """Whether a goal is to move a flat object, too wide for the gripper, to a region of the table.

    Such an object cannot be grasped from above, so it is slid.
    """
    if goal.predicate != "on" or scene.owner(goal.arguments[1]):
        return False
    size = np.ptp(scene.surface(goal.arguments[0]), axis=0)
    return bool(size[2] < _FLAT and size[:2].min() > 2 * PANDA.inner)


def slide(scene: ExpertScene, goal: Goal) -> Skill:
    """Slide the first argument to the middle of the second, retrying until the goal holds."""
    while not scene.satisfied(goal):
        obj, target = goal.arguments
        spot = _inside(scene, obj)
        start = Pose(position=spot + np.array([0.0, 0.0, PANDA.tip]), rotation=downward(np.pi / 2))
        yield reach(scene, start, start.at_height(start.position[2] + _UP), CLOSED)
        yield _drag(scene, obj, target)
        yield leave(scene, np.array([0.0, 0.0, _UP]), CLOSED)


def _inside(scene: ExpertScene, obj: str) -> Vector3:
    """Top of the object's surface at its center (m)."""
    surface, middle = scene.surface(obj), scene.center_of_mass(obj)
    under = surface[np.linalg.norm(surface[:, :2] - middle[:2], axis=1) < _MIDDLE]
    return np.array([*middle[:2], under[:, 2].max() if len(under) else middle[2]])


def _drag(scene: ExpertScene, obj: str, target: str) -> GripperMotion:
    start = scene.gripper
    low = _inside(scene, obj)[2] + PANDA.tip - _PRESS

    def missing() -> XY:
        return (scene.position(target) - scene.position(obj))[:2]

    def slipped_off() -> bool:
        off = (scene.gripper.position - scene.position(obj))[:2]
        return bool(np.linalg.norm(off) > _SLIPPED)

    def path() -> Sequence[Waypoint]:
        way = missing() * min(1.0, _AHEAD / max(float(np.linalg.norm(missing())), 1e-9))
        position = np.array([*(scene.gripper.position[:2] + way), low])
        pose = Pose(position=position, rotation=start.rotation)
        return (Waypoint(pose=pose, near=0.0, aligned=0.0),)

    return GripperMotion(
        phase=Phase.PUSH,
        path=path,
        grip=CLOSED,
        steps=_STEPS,
        interrupted=lambda: bool(np.linalg.norm(missing()) < _CLOSE_ENOUGH) or slipped_off(),
    )
