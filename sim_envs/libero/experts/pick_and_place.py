"""Skills to pick an object from above, and to place a held object: at the center, or beside others."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64
from scipy.spatial import KDTree

from sim_envs.libero.experts.motions import (
    CLOSED,
    CORNER,
    METRES_PER_STEP,
    OPEN,
    GripperMotion,
    Skill,
    Waypoint,
    holds,
    move,
    stay,
)
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.experts.steering import CONTROL_SECONDS
from sim_envs.scripted.grasps import Grasp, grasps_from_above
from sim_envs.scripted.gripper import PANDA, XY, Terrain, downward, underside_of
from sim_envs.scripted.poses import Pose, Vector3
from sim_envs.scripted.surfaces import Points
from sim_envs.truth.ground_truth import Phase

_MARGIN = 0.02  # clearance (m) below the hand and the held object
_OFF_THE_GROUND = 0.008  # height (m) by which an object is raised before it leaves the place under a roof
_DROP = 0.004  # height (m) from which an object is dropped
_RETREAT = 0.08  # distance (m) by which the gripper retreats
_RAISED = 0.1  # distance (m) by which an object is lifted
_OPENING_STEPS = 10  # control steps in which the fingers open
_CLOSING_STEPS = 30  # control steps in which they close, even if they push the object
_SQUEEZE = 5  # control steps in which the grip force then builds up
_CLOSED_ON_NOTHING = 0.003  # opening (m) at which there is nothing between the fingers
_TRIES_OF_A_GRASP = 2  # number of attempts with one grasp
_REACH_COST = 0.15  # cost of a grasp per metre from the robot's base: a stretched arm is less agile
_MIN_YAW = np.radians(-25.0)  # lower end of the half turn of closing directions, around the resting arm's
_LOWERING_S = 0.5  # seconds to descend to a grasp
_FROM_THE_EDGE = 0.01  # minimal distance (m) of a placed object's position from the region's edge
_SPACING = 0.01  # distance (m) between candidate spots
_LEVEL = 0.01  # spots whose heights differ by up to this (m) count as level
_GAPS = (0.02, 0.012, 0.006, 0.0)  # clearances (m) between objects, tried in this order

_AROUND = np.array([[np.cos(a), np.sin(a)] for a in np.arange(8) * np.pi / 4])


def pick(scene: ExpertScene, obj: str, tried: list[Grasp]) -> Skill:
    """Pick an object from above, trying each grasp at most twice until one holds."""
    while not holds(scene, obj):
        grasp = _best_grasp(scene, obj, tried)
        tried.append(grasp)
        yield _approach(scene, obj, grasp)
        yield from grab(scene, obj)
        if not holds(scene, obj):
            yield _retreat(scene)


def place(scene: ExpertScene, obj: str, target: str, *, stays: bool = False) -> Skill:
    """Carry the held object above a free spot of a target, lower it as far as possible, and release it.

    Then the gripper retreats, unless it `stays`.
    """
    spot = best_spot(scene, obj, target)

    def over() -> Pose:
        """The gripper pose at which the object is at the spot."""
        offset = scene.gripper.position - scene.position(obj) + np.array([*spot, 0.0])
        return Pose(position=scene.position(target) + offset, rotation=start.rotation)

    start = scene.gripper
    terrain = Terrain(scene.surroundings(obj), start=start.position[:2], end=over().position[:2])
    underside = underside_of(start, opening=scene.opening, held=scene.surface(obj))
    height = terrain.lowest_along(underside) + _MARGIN
    low = start.position[2] + _OFF_THE_GROUND
    free = terrain.nearest_open(underside, start.position[:2], low)
    out = Pose(position=np.array([*free, low]), rotation=start.rotation)

    def carrying() -> Sequence[Waypoint]:
        return (
            Waypoint(pose=out, near=0.005, aligned=np.pi),
            Waypoint(pose=out.at_height(height), near=CORNER, aligned=np.pi),
            Waypoint(pose=over().at_height(height), near=0.01),
        )

    yield move(scene, Phase.CARRY, carrying, CLOSED, holding=obj)
    if not holds(scene, obj):
        return
    start = scene.gripper
    terrain = Terrain(scene.surroundings(obj), start=start.position[:2], end=over().position[:2])
    underside = _underside(scene, obj)

    def lowering() -> Sequence[Waypoint]:
        end = over()
        return (Waypoint(pose=end.at_height(terrain.lowest(underside, end.position[:2]) + _DROP)),)

    yield move(scene, Phase.PLACE, lowering, CLOSED, holding=obj)
    yield release(scene, Phase.PLACE)
    if not stays:
        yield _retreat(scene)


def lift(scene: ExpertScene, obj: str, until: Callable[[], bool]) -> Skill:
    """Pick up an object and hold it in the air until a condition holds.

    A hand that has just put the object down grasps it where it is, so that what it does next follows from
    what it remembers, and not from whether it was on its way up or down.
    """
    tried: list[Grasp] = []
    while not until():
        if not _is_around(scene, obj):
            tried.append(_best_grasp(scene, obj, tried))
            yield _approach(scene, obj, tried[-1])
        yield from grab(scene, obj)
        path = (Waypoint(pose=scene.gripper.at_height(scene.gripper.position[2] + _RAISED), near=CORNER),)
        yield move(scene, Phase.CARRY, path, CLOSED)
        while scene.opening > _CLOSED_ON_NOTHING and not until():
            yield stay(scene, Phase.CARRY, CLOSED, _SQUEEZE)


def _is_around(scene: ExpertScene, obj: str) -> bool:
    """Whether the fingers are where one of an object's grasps has them."""
    frame = scene.pose(obj)
    here = scene.gripper.seen_from(frame)
    found = grasps_from_above(
        scene.surface(obj), scene.surroundings(obj), frame=frame, center_of_mass=scene.center_of_mass(obj)
    )
    return any(not grasp.differs_from(Grasp(pose=here, width=grasp.width, cost=0.0)) for grasp in found)


def grab(scene: ExpertScene, obj: str) -> Skill:
    """Close the fingers until both touch an object, following it while it moves by itself, and squeeze."""
    start = scene.gripper
    follows = scene.predicted_motion(obj) is not None
    offset = start.position - scene.pose(obj).position

    def path() -> Sequence[Waypoint]:
        ahead, here = scene.predicted_motion(obj) if follows else None, scene.gripper if follows else start
        if ahead is not None:
            here = Pose(position=scene.pose(obj).position + offset, rotation=here.rotation)
        return (Waypoint(pose=here, near=np.inf, aligned=np.inf, ahead=ahead),)

    yield GripperMotion(
        phase=Phase.GRASP,
        path=path,
        grip=CLOSED,
        steps=_CLOSING_STEPS,
        dwell=_CLOSING_STEPS,
        finished=lambda: holds(scene, obj) or scene.opening < _CLOSED_ON_NOTHING,
    )
    yield stay(scene, Phase.GRASP, CLOSED, _SQUEEZE)


def release(scene: ExpertScene, phase: Phase) -> GripperMotion:
    """Open the fingers without moving the hand."""
    return stay(scene, phase, OPEN, _OPENING_STEPS)


def _retreat(scene: ExpertScene) -> GripperMotion:
    start = scene.gripper
    path = (Waypoint(pose=start.at_height(start.position[2] + _RETREAT), near=CORNER),)
    return move(scene, Phase.RETREAT, path, OPEN)


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
            Waypoint(pose=up, near=CORNER, aligned=np.pi),
            Waypoint(pose=over, near=0.008, ahead=ahead),
            Waypoint(pose=end, ahead=ahead),
        )

    return move(scene, Phase.APPROACH, path, OPEN)


def _best_grasp(scene: ExpertScene, obj: str, tried: Sequence[Grasp]) -> Grasp:
    """The best grasp that has not been tried twice; straight down on the middle if none is found.

    The second attempt repeats the grasp, since a policy that imitates cannot see how often it has tried.
    """
    met = _predicted_shift(scene, obj)
    frame, center = scene.pose(obj).shifted(met), scene.center_of_mass(obj) + met
    found = grasps_from_above(
        scene.surface(obj) + met, scene.surroundings(obj), frame=frame, center_of_mass=center
    )
    base = scene.base.position[:2]

    def cost(grasp: Grasp) -> float:
        reach = float(np.linalg.norm(frame.to_world(grasp.pose.position)[:2] - base))
        return grasp.cost + _REACH_COST * reach

    fresh = [
        grasp for grasp in found if sum(not grasp.differs_from(other) for other in tried) < _TRIES_OF_A_GRASP
    ]
    straight = Pose(position=frame.to_local(center), rotation=frame.rotation.T @ downward(np.pi / 2))
    return min(fresh, key=cost, default=Grasp(pose=straight, width=2 * PANDA.inner, cost=np.inf))


def _grasp_pose(scene: ExpertScene, obj: str, grasp: Grasp) -> Pose:
    """The grasp in the world, pointing down even if the object has tilted.

    Of the two equivalent rotations it takes the one in a fixed half turn, so that demonstrations of similar
    states agree.
    """
    frame = scene.pose(obj)
    x = frame.rotation @ grasp.pose.rotation[:, 0]
    yaw = _MIN_YAW + (np.arctan2(x[1], x[0]) - _MIN_YAW) % np.pi
    return Pose(position=frame.to_world(grasp.pose.position), rotation=downward(yaw))


def _predicted_shift(scene: ExpertScene, obj: str) -> Vector3:
    """Predicted displacement (m) of a moving object by the time the gripper reaches it."""
    ahead = scene.predicted_motion(obj)
    if ahead is None:
        return np.zeros(3)
    way = float(np.linalg.norm(scene.pose(obj).position - scene.gripper.position))
    return ahead(way / METRES_PER_STEP * CONTROL_SECONDS + _LOWERING_S)


def _underside(scene: ExpertScene, obj: str) -> Points:
    """The underside of gripper and held object, with room for the fingers to open."""
    return underside_of(scene.gripper, opening=scene.opening, widest=2 * PANDA.inner, held=scene.surface(obj))


def best_spot(scene: ExpertScene, obj: str, target: str) -> XY:
    """Where to place a held object, relative to the target's center (m): the nearest free spot, if any.

    Spots are as low as the center, and leave room for the objects that goals still require at the target.
    """
    region = scene.region(target)
    if region is None:
        return np.zeros(2)
    underside, middle = _underside(scene, obj), scene.position(target)[:2]
    above = middle + (scene.gripper.position[:2] - scene.position(obj)[:2])
    fixed, everything = (
        Terrain(scene.surroundings(obj, *hidden), start=middle, end=middle)
        for hidden in (scene.movable - {scene.owner(target)}, ())
    )

    def footprint(name: str) -> Float64[np.ndarray, "n 2"]:
        return scene.surface(name)[:, :2] - scene.position(name)[:2]

    still_to_come = [
        footprint(goal.arguments[0])
        for goal in scene.goals
        if goal.arguments[1:] == (target,) and goal.arguments[0] != obj and not scene.satisfied(goal)
    ]
    own = footprint(obj)

    def fits(spot: XY, gap: float) -> bool:
        """Whether no movable object is within a gap (m), and others fit on the other side of the center."""
        return all(
            everything.lowest(underside, above + spot + step)
            <= fixed.lowest(underside, above + spot + step) + _LEVEL
            for step in gap * np.concatenate([np.zeros((1, 2)), _AROUND])
        ) and all(float(KDTree(own + spot).query(other - spot)[0].min()) > gap for other in still_to_come)

    half = np.maximum(region.half[:2] - _FROM_THE_EDGE, 0.0)
    axes = [np.arange(-int(h / _SPACING), int(h / _SPACING) + 1) * _SPACING for h in half]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    spots = grid @ region.pose.rotation[:2, :2].T
    # Nearest first; of equally near ones, those farther from the robot.
    distance = np.round(np.linalg.norm(spots, axis=1), 6)
    order = np.lexsort(np.stack([-spots @ (middle - scene.base.position[:2]), distance]))
    lowest = fixed.lowest(underside, above) + _LEVEL
    level = [spot for spot in spots[order] if fixed.lowest(underside, above + spot) <= lowest]
    return next((spot for gap in _GAPS for spot in level if fits(spot, gap)), np.zeros(2))
