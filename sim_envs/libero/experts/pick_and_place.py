"""Skills to pick an object from above, and to place a held object."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from sim_envs.libero.experts.reaching import here, stay
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.experts.spots import Spots
from sim_envs.libero.experts.steering import CONTROL_SECONDS
from sim_envs.scripted.clearance import XY, Terrain, underside_of
from sim_envs.scripted.grasps import Grasp, grasps_from_above
from sim_envs.scripted.gripper import PANDA, downward
from sim_envs.scripted.motion import CLOSED, OPEN, GripperMotion, Skill, Waypoint
from sim_envs.scripted.poses import Pose, Vector3
from sim_envs.scripted.surfaces import Points
from sim_envs.truth.ground_truth import Phase

_CORNER = 0.015
"""Position tolerance (m) of waypoints on the way; less than the margin."""

_MARGIN = 0.02
"""Clearance (m) below the hand and the held object."""

_OFF_THE_GROUND = 0.008
"""Height (m) by which an object is raised before it is moved out from under an obstacle."""

_DROP = 0.004
"""Height (m) from which an object is dropped."""

_RETREAT = 0.08
"""Distance (m) by which the gripper retreats."""

_OPENING_STEPS = 10
"""Control steps in which the fingers open."""

_CLOSING_STEPS = 30
"""Control steps in which the fingers close, even if they push the object."""

_SQUEEZE = 5
"""Control steps in which the grip force builds up."""

_CLOSED_ON_NOTHING = 0.003
"""Opening (m) at which there is nothing between the fingers."""

_TRIES_OF_A_GRASP = 2
"""Number of attempts with one grasp."""

_REACH_COST = 0.15
"""Cost of a grasp per metre from the robot's base: a stretched arm is less agile."""

_MIN_YAW = np.radians(-25.0)
"""Lower end (rad) of the half turn of closing directions; the resting arm's is at a right angle."""

_METRES_PER_STEP = 0.012
_STEPS_TO_SPARE = 30

_LOWERING_S = 0.5
"""Seconds to descend to a grasp."""


def pick(scene: ExpertScene, obj: str, tried: list[Grasp]) -> Skill:
    """Pick an object from above, trying each grasp at most twice until one holds."""
    while not holds(scene, obj):
        grasp = _best_grasp(scene, obj, tried)
        tried.append(grasp)
        yield _approach(scene, obj, grasp)
        yield close(scene, obj)
        yield squeeze(scene)
        if not holds(scene, obj):
            yield _retreat(scene)


def place(scene: ExpertScene, obj: str, target: str) -> Skill:
    """Carry the held object above a free spot of a target, lower it as far as possible, and release it."""
    spot = Spots(scene, obj, target, _underside(scene, obj)).best()
    yield _carry(scene, obj, target, spot)
    if not holds(scene, obj):
        return
    yield _lower(scene, obj, target, spot)
    yield release(scene, Phase.PLACE)
    yield _retreat(scene)


def holds(scene: ExpertScene, obj: str) -> bool:
    """Whether both fingers touch an object."""
    return scene.fingers_touching(obj) == 2


def release(scene: ExpertScene, phase: Phase) -> GripperMotion:
    """Open the fingers without moving the hand."""
    return stay(scene, phase, OPEN, _OPENING_STEPS)


def _approach(scene: ExpertScene, obj: str, grasp: Grasp) -> GripperMotion:
    start, met = scene.gripper, _predicted_shift(scene, obj)
    goal = _grasp_pose(scene, obj, grasp).shifted(met)
    obstacles = np.concatenate([scene.surroundings(), scene.surface(obj) + met])
    terrain = Terrain(obstacles, start=start.position[:2], end=goal.position[:2])
    height = terrain.lowest_along(underside_of(goal, opening=2 * PANDA.inner)) + _MARGIN
    up = start.at_height(max(start.position[2], height))

    def path() -> Sequence[Waypoint]:
        end = _grasp_pose(scene, obj, grasp)
        over = end.at_height(max(height, end.position[2] + _MARGIN))
        ahead = scene.predicted_motion(obj)
        return (
            Waypoint(pose=up, near=_CORNER, aligned=np.pi),
            Waypoint(pose=over, near=0.008, ahead=ahead),
            Waypoint(pose=end, ahead=ahead),
        )

    return GripperMotion(phase=Phase.APPROACH, path=path, grip=OPEN, steps=time_for(start, path()))


def close(scene: ExpertScene, obj: str) -> GripperMotion:
    """Close the fingers until both touch an object, following it while it moves by itself."""
    return GripperMotion(
        phase=Phase.GRASP,
        path=here(scene) if scene.predicted_motion(obj) is None else _following(scene, obj),
        grip=CLOSED,
        steps=_CLOSING_STEPS,
        dwell=_CLOSING_STEPS,
        finished=lambda: holds(scene, obj) or scene.opening < _CLOSED_ON_NOTHING,
    )


def squeeze(scene: ExpertScene) -> GripperMotion:
    """Wait for the grip force to build up before lifting."""
    return stay(scene, Phase.GRASP, CLOSED, _SQUEEZE)


def _underside(scene: ExpertScene, obj: str) -> Points:
    """The underside of gripper and held object, with room for the fingers to open."""
    return underside_of(scene.gripper, opening=scene.opening, widest=2 * PANDA.inner, held=scene.surface(obj))


def _carry(scene: ExpertScene, obj: str, target: str, spot: XY) -> GripperMotion:
    start = scene.gripper
    end = _pose_above(scene, obj, target, spot)
    terrain = Terrain(scene.surroundings(obj), start=start.position[:2], end=end.position[:2])
    underside = underside_of(start, opening=scene.opening, held=scene.surface(obj))
    height = terrain.lowest_along(underside) + _MARGIN
    low = start.position[2] + _OFF_THE_GROUND
    free = terrain.nearest_open(underside, start.position[:2], low)
    out = Pose(position=np.array([*free, low]), rotation=start.rotation)

    def path() -> Sequence[Waypoint]:
        over = Pose(position=_pose_above(scene, obj, target, spot).position, rotation=start.rotation)
        return (
            Waypoint(pose=out, near=0.005, aligned=np.pi),
            Waypoint(pose=out.at_height(height), near=_CORNER, aligned=np.pi),
            Waypoint(pose=over.at_height(height), near=0.01),
        )

    return GripperMotion(
        phase=Phase.CARRY,
        path=path,
        grip=CLOSED,
        steps=time_for(start, path()),
        interrupted=lambda: not holds(scene, obj),
    )


def _lower(scene: ExpertScene, obj: str, target: str, spot: XY) -> GripperMotion:
    start = scene.gripper
    end = _pose_above(scene, obj, target, spot)
    terrain = Terrain(scene.surroundings(obj), start=start.position[:2], end=end.position[:2])
    underside = _underside(scene, obj)

    def path() -> Sequence[Waypoint]:
        over = Pose(position=_pose_above(scene, obj, target, spot).position, rotation=start.rotation)
        return (Waypoint(pose=over.at_height(terrain.lowest(underside, over.position[:2]) + _DROP)),)

    return GripperMotion(
        phase=Phase.PLACE,
        path=path,
        grip=CLOSED,
        steps=time_for(start, path()),
        interrupted=lambda: not holds(scene, obj),
    )


def _retreat(scene: ExpertScene) -> GripperMotion:
    start = scene.gripper
    path = (Waypoint(pose=start.at_height(start.position[2] + _RETREAT), near=_CORNER),)
    return GripperMotion(phase=Phase.RETREAT, path=lambda: path, grip=OPEN, steps=time_for(start, path))


def _best_grasp(scene: ExpertScene, obj: str, tried: Sequence[Grasp]) -> Grasp:
    """The best grasp that has not been tried twice; straight down on the middle if none is found.

    The second attempt repeats the grasp, since a policy that imitates cannot see how often it has tried.
    """
    met = _predicted_shift(scene, obj)
    frame, center = scene.pose(obj).shifted(met), scene.center_of_mass(obj) + met
    found = grasps_from_above(
        scene.surface(obj) + met, scene.surroundings(obj), frame=frame, center_of_mass=center
    )
    fresh = [
        grasp for grasp in found if sum(not grasp.differs_from(other) for other in tried) < _TRIES_OF_A_GRASP
    ]
    if fresh:
        base = scene.base.position[:2]
        return min(
            fresh,
            key=lambda grasp: (
                grasp.cost
                + _REACH_COST * float(np.linalg.norm(frame.to_world(grasp.pose.position)[:2] - base))
            ),
        )
    straight = Pose(position=frame.to_local(center), rotation=frame.rotation.T @ downward(np.pi / 2))
    return Grasp(pose=straight, width=2 * PANDA.inner, cost=np.inf)


def _grasp_pose(scene: ExpertScene, obj: str, grasp: Grasp) -> Pose:
    """The grasp in the world, pointing down even if the object has tilted.

    Of the two equivalent rotations it takes the one in a fixed half turn, so that demonstrations of similar
    states agree.
    """
    frame = scene.pose(obj)
    x = frame.rotation @ grasp.pose.rotation[:, 0]
    yaw = _MIN_YAW + (np.arctan2(x[1], x[0]) - _MIN_YAW) % np.pi
    return Pose(position=frame.to_world(grasp.pose.position), rotation=downward(yaw))


def _pose_above(scene: ExpertScene, obj: str, target: str, spot: XY) -> Pose:
    """The gripper pose at which the held object is at a spot of the target."""
    gripper = scene.gripper
    offset = gripper.position - scene.position(obj) + np.array([*spot, 0.0])
    return Pose(position=scene.position(target) + offset, rotation=gripper.rotation)


def _predicted_shift(scene: ExpertScene, obj: str) -> Vector3:
    """Predicted displacement (m) of a moving object by the time the gripper reaches it."""
    ahead = scene.predicted_motion(obj)
    if ahead is None:
        return np.zeros(3)
    way = float(np.linalg.norm(scene.pose(obj).position - scene.gripper.position))
    return ahead(way / _METRES_PER_STEP * CONTROL_SECONDS + _LOWERING_S)


def _following(scene: ExpertScene, obj: str) -> Callable[[], Sequence[Waypoint]]:
    """A path that stays at the gripper's pose relative to an object while it moves by itself."""
    offset = scene.gripper.position - scene.pose(obj).position

    def path() -> Sequence[Waypoint]:
        ahead, here = scene.predicted_motion(obj), scene.gripper
        if ahead is not None:
            here = Pose(position=scene.pose(obj).position + offset, rotation=here.rotation)
        return (Waypoint(pose=here, near=np.inf, aligned=np.inf, ahead=ahead),)

    return path


def time_for(start: Pose, path: Sequence[Waypoint]) -> int:
    """Time limit of a path in control steps: twice the expected time, plus a constant."""
    stops = [start.position, *(waypoint.pose.position for waypoint in path)]
    length = sum(float(np.linalg.norm(b - a)) for a, b in itertools.pairwise(stops))
    return round(2 * length / _METRES_PER_STEP) + _STEPS_TO_SPARE
