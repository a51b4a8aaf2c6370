"""Two skills: to take hold of a thing from above, and to set down what is held."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from sim_envs.libero.experts.reaching import here, stay
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.experts.spots import Spots
from sim_envs.libero.experts.steering import CONTROL_SECONDS
from sim_envs.scripted.clearance import XY, Terrain, Underside
from sim_envs.scripted.grasps import Grasp, grasps_from_above
from sim_envs.scripted.gripper import PANDA, downward
from sim_envs.scripted.motion import CLOSED, OPEN, GripperMotion, Skill, Waypoint
from sim_envs.scripted.poses import Pose, Vector3
from sim_envs.truth.ground_truth import Phase

_CORNER = 0.015
"""Corners on the way are cut this much (m), which is less than the margin."""

_MARGIN = 0.02
"""Room (m) left under what travels."""

_OFF_THE_GROUND = 0.008
"""Height (m) by which a thing is raised before it is moved sideways, if something is above it."""

_DROP = 0.004
"""Height (m) from which a thing is let go."""

_RETREAT = 0.08
"""How far (m) the gripper draws back."""

_OPENING_STEPS = 10
"""Control steps in which the fingers open."""

_CLOSING_STEPS = 30
"""Control steps in which the fingers close, even if they push the thing before them."""

_SQUEEZE = 5
"""Control steps in which the force of the fingers grows."""

_CLOSED_ON_NOTHING = 0.003
"""Opening (m) at which there is nothing between the fingers."""

_TRIES_OF_A_GRASP = 2
"""How often a grasp is tried before another is."""

_REACH_COST = 0.15
"""What a metre from the robot's base adds to the cost of a grasp: a stretched arm is less agile."""

_LEAST_YAW = np.radians(-25.0)
"""Closing directions are from here to half a turn further (rad); the resting arm's is at a right angle."""

_METRES_PER_STEP = 0.012
_STEPS_TO_SPARE = 30

_LOWERING_S = 0.5
"""Seconds from over a thing to around it."""


def pick(scene: ExpertScene, thing: str, tried: list[Grasp]) -> Skill:
    """Take hold of a thing from above, one grasp after another until one holds; none that failed twice."""
    while not holds(scene, thing):
        grasp = _best_grasp(scene, thing, tried)
        tried.append(grasp)
        yield _approach(scene, thing, grasp)
        yield close(scene, thing)
        yield squeeze(scene)
        if not holds(scene, thing):
            yield _retreat(scene)


def place(scene: ExpertScene, thing: str, target: str) -> Skill:
    """Carry what is held over a free spot of a target, lower it as far as there is room, let go."""
    spot = Spots(scene, thing, target, _underside(scene, thing)).best()
    yield _carry(scene, thing, target, spot)
    if not holds(scene, thing):
        return
    yield _lower(scene, thing, target, spot)
    yield let_go(scene, Phase.PLACE)
    yield _retreat(scene)


def holds(scene: ExpertScene, thing: str) -> bool:
    """Whether both fingers touch a thing."""
    return scene.fingers_touching(thing) == 2


def let_go(scene: ExpertScene, phase: Phase) -> GripperMotion:
    """Open the fingers where they are."""
    return stay(scene, phase, OPEN, _OPENING_STEPS)


def _approach(scene: ExpertScene, thing: str, grasp: Grasp) -> GripperMotion:
    start, met = scene.gripper, _meeting(scene, thing)
    goal = _grasp_pose(scene, thing, grasp).shifted(met)
    obstacles = np.concatenate([scene.surroundings(), scene.surface(thing) + met])
    terrain = Terrain(obstacles, start=start.position[:2], end=goal.position[:2])
    height = terrain.lowest_along(Underside.of(goal, opening=2 * PANDA.inner)) + _MARGIN
    up = start.at_height(max(start.position[2], height))

    def path() -> Sequence[Waypoint]:
        end = _grasp_pose(scene, thing, grasp)
        over = end.at_height(max(height, end.position[2] + _MARGIN))
        ahead = scene.predicted_motion(thing)
        return (
            Waypoint(pose=up, near=_CORNER, aligned=np.pi),
            Waypoint(pose=over, near=0.008, ahead=ahead),
            Waypoint(pose=end, ahead=ahead),
        )

    return GripperMotion(phase=Phase.APPROACH, path=path, grip=OPEN, steps=time_for(start, path()))


def close(scene: ExpertScene, thing: str) -> GripperMotion:
    """Close the fingers until both touch a thing, which they follow until one does."""
    return GripperMotion(
        phase=Phase.GRASP,
        path=here(scene) if scene.predicted_motion(thing) is None else _with(scene, thing),
        grip=CLOSED,
        steps=_CLOSING_STEPS,
        dwell=_CLOSING_STEPS,
        finished=lambda: holds(scene, thing) or scene.opening < _CLOSED_ON_NOTHING,
    )


def squeeze(scene: ExpertScene) -> GripperMotion:
    """Let the force grow before lifting: it does for a while after the fingers have met the thing."""
    return stay(scene, Phase.GRASP, CLOSED, _SQUEEZE)


def _underside(scene: ExpertScene, thing: str) -> Underside:
    """That of the gripper and what it holds, with room for the fingers to open."""
    return Underside.of(
        scene.gripper, opening=scene.opening, widest=2 * PANDA.inner, held=scene.surface(thing)
    )


def _carry(scene: ExpertScene, thing: str, target: str, spot: XY) -> GripperMotion:
    start = scene.gripper
    end = _over(scene, thing, target, spot)
    terrain = Terrain(scene.surroundings(thing), start=start.position[:2], end=end.position[:2])
    underside = Underside.of(start, opening=scene.opening, held=scene.surface(thing))
    height = terrain.lowest_along(underside) + _MARGIN
    low = start.position[2] + _OFF_THE_GROUND
    free = terrain.nearest_open(underside, start.position[:2], low)
    out = Pose(position=np.array([*free, low]), rotation=start.rotation)

    def path() -> Sequence[Waypoint]:
        over = Pose(position=_over(scene, thing, target, spot).position, rotation=start.rotation)
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
        interrupted=lambda: not holds(scene, thing),
    )


def _lower(scene: ExpertScene, thing: str, target: str, spot: XY) -> GripperMotion:
    start = scene.gripper
    end = _over(scene, thing, target, spot)
    terrain = Terrain(scene.surroundings(thing), start=start.position[:2], end=end.position[:2])
    underside = _underside(scene, thing)

    def path() -> Sequence[Waypoint]:
        over = Pose(position=_over(scene, thing, target, spot).position, rotation=start.rotation)
        return (Waypoint(pose=over.at_height(terrain.lowest(underside, over.position[:2]) + _DROP)),)

    return GripperMotion(
        phase=Phase.PLACE,
        path=path,
        grip=CLOSED,
        steps=time_for(start, path()),
        interrupted=lambda: not holds(scene, thing),
    )


def _retreat(scene: ExpertScene) -> GripperMotion:
    start = scene.gripper
    path = (Waypoint(pose=start.at_height(start.position[2] + _RETREAT), near=_CORNER),)
    return GripperMotion(phase=Phase.RETREAT, path=lambda: path, grip=OPEN, steps=time_for(start, path))


def _best_grasp(scene: ExpertScene, thing: str, tried: Sequence[Grasp]) -> Grasp:
    """The best grasp that has not been tried twice; straight down on the middle if none is found.

    A second try of the same grasp shows that a slip is no reason to do something else; and what a policy sees
    after one does not tell how often it has tried.
    """
    met = _meeting(scene, thing)
    frame, center = scene.pose(thing).shifted(met), scene.center_of_mass(thing) + met
    found = grasps_from_above(
        scene.surface(thing) + met, scene.surroundings(thing), frame=frame, center_of_mass=center
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


def _grasp_pose(scene: ExpertScene, thing: str, grasp: Grasp) -> Pose:
    """The grasp in the world, pointing down even if the thing has tilted, and turned the usual way.

    Both ways round are the same grasp. Where one is hardly shorter than the other, taking always the same one
    keeps a policy that imitates from being torn between them.
    """
    frame = scene.pose(thing)
    x = frame.rotation @ grasp.pose.rotation[:, 0]
    yaw = _LEAST_YAW + (np.arctan2(x[1], x[0]) - _LEAST_YAW) % np.pi
    return Pose(position=frame.to_world(grasp.pose.position), rotation=downward(yaw))


def _over(scene: ExpertScene, thing: str, target: str, spot: XY) -> Pose:
    """Where the gripper has to be for the held thing to be at a spot of the target."""
    gripper = scene.gripper
    offset = gripper.position - scene.position(thing) + np.array([*spot, 0.0])
    return Pose(position=scene.position(target) + offset, rotation=gripper.rotation)


def _meeting(scene: ExpertScene, thing: str) -> Vector3:
    """How far (m) a thing will have come by itself when the gripper is there."""
    ahead = scene.predicted_motion(thing)
    if ahead is None:
        return np.zeros(3)
    way = float(np.linalg.norm(scene.pose(thing).position - scene.gripper.position))
    return ahead(way / _METRES_PER_STEP * CONTROL_SECONDS + _LOWERING_S)


def _with(scene: ExpertScene, thing: str) -> Callable[[], Sequence[Waypoint]]:
    """A path that is at its end from the start, which moves with a thing as long as that moves by itself."""
    offset = scene.gripper.position - scene.pose(thing).position

    def path() -> Sequence[Waypoint]:
        ahead, here = scene.predicted_motion(thing), scene.gripper
        if ahead is not None:
            here = Pose(position=scene.pose(thing).position + offset, rotation=here.rotation)
        return (Waypoint(pose=here, near=np.inf, aligned=np.inf, ahead=ahead),)

    return path


def time_for(start: Pose, path: Sequence[Waypoint]) -> int:
    """Control steps after which a motion along a path is given up: twice what it should take, and some."""
    stops = [start.position, *(waypoint.pose.position for waypoint in path)]
    length = sum(float(np.linalg.norm(b - a)) for a, b in itertools.pairwise(stops))
    return round(2 * length / _METRES_PER_STEP) + _STEPS_TO_SPARE
