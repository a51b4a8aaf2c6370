"""The skill to insert an object from the side, under a ceiling."""

from collections.abc import Sequence

import numpy as np

from sim_envs.libero.experts.insertion import Insertion, insertions, is_covered
from sim_envs.libero.experts.pick_and_place import close, holds, release, squeeze, time_for
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.scripted.clearance import Terrain, underside_of
from sim_envs.scripted.grasps import Grasp
from sim_envs.scripted.gripper import PANDA
from sim_envs.scripted.motion import CLOSED, OPEN, GripperMotion, Skill, Waypoint
from sim_envs.scripted.poses import Pose
from sim_envs.truth.ground_truth import Phase

_MARGIN = 0.02
"""Clearance (m) below the hand and the held object."""

_CORNER = 0.015
"""Position tolerance (m) of waypoints on the way; less than the margin."""

_DOWN = 0.03
"""Distance (m) by which an object is lowered before release, unless the ground stops it."""

_TURN_STRIDE = 0.3
"""Spacing (rad) of the rotations checked when the gripper rotates on its way."""


def insertion(scene: ExpertScene, obj: str, target: str, tried: Sequence[Grasp]) -> Insertion | None:
    """An insertion of an object from the side; None if none is needed, or all grasps were tried."""
    if not is_covered(scene, target) or holds(scene, obj):
        return None
    plans = insertions(scene, obj, target)
    return next((plan for plan in plans if all(plan.grasp.differs_from(other) for other in tried)), None)


def insert(scene: ExpertScene, obj: str, plan: Insertion) -> Skill:
    """Grasp an object, insert it from the side, release it, and move out the same way."""
    yield _approach(scene, plan)
    yield close(scene, obj)
    yield squeeze(scene)
    if holds(scene, obj):
        yield _carry(scene, obj, plan)
    if holds(scene, obj):
        yield _moving(scene, obj, Phase.PLACE, (Waypoint(pose=plan.inside, near=0.008),))
        down = scene.gripper.at_height(scene.gripper.position[2] - _DOWN)
        yield _moving(scene, obj, Phase.PLACE, (Waypoint(pose=down),))
    yield release(scene, Phase.PLACE)
    yield _leave(scene, plan)


def _approach(scene: ExpertScene, plan: Insertion) -> GripperMotion:
    start = scene.gripper
    height = max(_travel_height(scene, plan.before), start.position[2])
    path = (
        Waypoint(pose=start.at_height(height), near=_CORNER, aligned=np.pi),
        Waypoint(pose=plan.before.at_height(height), near=0.02),
        Waypoint(pose=plan.before, near=0.01),
        Waypoint(pose=plan.grasping),
    )
    return GripperMotion(phase=Phase.APPROACH, path=lambda: path, grip=OPEN, steps=time_for(start, path))


def _carry(scene: ExpertScene, obj: str, plan: Insertion) -> GripperMotion:
    height = _travel_height(scene, plan.outside, held=obj)
    path = (
        Waypoint(pose=scene.gripper.at_height(height), near=_CORNER, aligned=np.pi),
        Waypoint(pose=plan.outside.at_height(height), near=0.01),
        Waypoint(pose=plan.outside, near=0.005, aligned=0.06),
    )
    return _moving(scene, obj, Phase.CARRY, path)


def _leave(scene: ExpertScene, plan: Insertion) -> GripperMotion:
    start = scene.gripper
    path = (Waypoint(pose=start.shifted(plan.outside.position - plan.inside.position), near=_CORNER),)
    return GripperMotion(phase=Phase.RETREAT, path=lambda: path, grip=OPEN, steps=time_for(start, path))


def _moving(scene: ExpertScene, obj: str, phase: Phase, path: Sequence[Waypoint]) -> GripperMotion:
    """A motion with a held object, interrupted if it is dropped."""
    return GripperMotion(
        phase=phase,
        path=lambda: path,
        grip=CLOSED,
        steps=time_for(scene.gripper, path),
        interrupted=lambda: not holds(scene, obj),
    )


def _travel_height(scene: ExpertScene, end: Pose, held: str | None = None) -> float:
    """Height (m) at which the gripper moves above another pose, rotating on the way."""
    start, hidden = scene.gripper, [held] if held else []
    local = start.to_local(scene.surface(held)) if held else np.zeros((0, 3))
    terrain = Terrain(scene.surroundings(*hidden), start=start.position[:2], end=end.position[:2])
    undersides = (
        underside_of(pose, opening=2 * PANDA.inner, held=pose.to_world(local))
        for pose in _turning(start, end)
    )
    return max(map(terrain.lowest_along, undersides)) + _MARGIN


def _turning(start: Pose, end: Pose) -> list[Pose]:
    """Poses at the start's position, rotating towards the end in small steps."""
    turn = start.twist_to(end) * np.repeat([0.0, 1.0], 3)
    shares = np.linspace(0.0, 1.0, int(np.linalg.norm(turn) / _TURN_STRIDE) + 2)
    return [start.moved(share * turn) for share in shares]
