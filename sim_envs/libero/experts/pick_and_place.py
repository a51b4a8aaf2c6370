"""Skills to pick an object from above, place it at a center or beside others, or insert it from the side.

Inserting is lowering, turned on its side: with the insertion direction as down, a height map of the scene
gives the depth to which the gripper and the held object can go.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64
from scipy.spatial import KDTree

from contracts.truth import Phase
from sim_envs.libero.experts import motions
from sim_envs.libero.experts.motions import CLOSED, CORNER, OPEN, GripperMotion, Skill, Waypoint, holds, move
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.scripted import gripper
from sim_envs.scripted.gripper import FULLY_OPEN, XY, Grasp, Terrain, downward, lowest_points, underside_of
from sim_envs.scripted.poses import Box, Matrix3, Pose, Vector3
from sim_envs.scripted.surfaces import Points

_MARGIN = 0.02  # clearance (m) below the hand and the held object
_OFF_THE_GROUND = 0.008  # height (m) by which an object is raised before it leaves the place under a roof
_DROP = 0.004  # height (m) from which an object is dropped
_RETREAT = 0.08  # distance (m) by which the gripper retreats
_HIGHEST = 0.25  # height (m) of the hand above the place of an object that is lifted
_OUT_OF_THE_WAY = 0.25  # height (m) of the hand above an object that is to stay where it is
_TRIES_OF_A_GRASP = 2  # number of attempts with one grasp
_REACH_COST = 0.15  # cost of a grasp per metre from the robot's base: a stretched arm is less agile
_MIN_YAW = np.radians(-25.0)  # lower end of the half turn of closing directions, around the resting arm's
_LOWERING_S = 0.5  # seconds to descend to a grasp
_FROM_THE_EDGE = 0.01  # minimal distance (m) of a placed object's position from the region's edge
_SPACING = 0.01  # distance (m) between candidate spots
_LEVEL = 0.01  # spots whose heights differ by up to this (m) count as level
_GAPS = (0.02, 0.012, 0.006, 0.0)  # clearances (m) between objects, tried in this order
_AROUND = np.array([[np.cos(a), np.sin(a)] for a in np.arange(8) * np.pi / 4])

_DOWN = 0.03  # distance (m) by which an inserted object is lowered before release, unless the ground stops it
_TURN_STRIDE = 0.3  # spacing (rad) of the rotations checked when the gripper rotates on its way
_TILTS = np.radians(np.arange(30.0, 91.0, 15.0))
_HEADINGS = np.radians(np.arange(-180.0, 180.0, 30.0))
_PER_TURN = 2  # number of grasps checked for each rotation
_WAYS = 4  # number of directions into a region that are checked: across its sides
_HOVER = 0.012  # height (m) above the ground at which an object is inserted; surface points are 5 mm apart
_FROM_THE_SIDE = 0.012  # minimal distance (m) of an inserted object's position from the region's edge
_FROM_THE_BACK = 0.01  # clearance (m) at the end of the insertion
_ASIDE = (0.015, 0.005, 0.0)  # clearances (m) at both sides, tried in this order
_COLUMN = 0.012  # horizontal distance (m) from a region's center within which surfaces are a ceiling
_CEILING = 0.02  # if they are this far (m) above it
_FLAT = 0.01  # regions up to this half height (m) are surfaces
_BACK = 0.06  # distance (m) before a grasp at which the gripper is in line with it
_FARTHEST_OUT = 0.4  # maximal length (m) of an insertion
_UP = np.array([0.0, 0.0, 1.0])


def pick(scene: ExpertScene, obj: str, tried: list[Grasp]) -> Skill:
    """Pick an object from above, trying each grasp at most twice until one holds."""
    while not holds(scene, obj):
        tried.append(_best_grasp(scene, obj, tried))
        yield _approach(scene, obj, tried[-1])
        yield from motions.grab(scene, obj)
        if not holds(scene, obj):
            yield _retreat(scene)


def place(scene: ExpertScene, obj: str, target: str, *, stays: bool = False) -> Skill:
    """Carry the held object above a free spot of a target, lower it as far as possible, and release it.

    Then the gripper retreats, unless it `stays`.
    """
    spot = _best_spot(scene, obj, target)

    def over() -> Pose:
        offset = scene.gripper.position - scene.position(obj) + np.array([*spot, 0.0])
        return Pose(position=scene.position(target) + offset, rotation=start.rotation)

    start = scene.gripper
    moving = (obj, *scene.contents(obj))
    terrain = Terrain(scene.surroundings(*moving), start=start.position[:2], end=over().position[:2])
    underside = underside_of(start, opening=scene.opening, held=scene.surface(obj))
    height = terrain.lowest_along(underside) + _MARGIN
    low = start.position[2] + _OFF_THE_GROUND
    free = terrain.nearest_open(underside, start.position[:2], low)
    out = Pose(position=np.array([*free, low]), rotation=start.rotation)

    def carrying() -> motions.Path:
        return (
            Waypoint(pose=out, near=0.005, aligned=np.pi),
            Waypoint(pose=out.at_height(height), near=CORNER, aligned=np.pi),
            Waypoint(pose=over().at_height(height), near=0.01),
        )

    yield move(scene, Phase.CARRY, carrying, CLOSED, holding=obj)
    if not holds(scene, obj):
        return
    start = scene.gripper
    terrain = Terrain(scene.surroundings(*moving), start=start.position[:2], end=over().position[:2])
    underside = _underside(scene, obj)

    def lowering() -> motions.Path:
        end = over()
        return (Waypoint(pose=end.at_height(terrain.lowest(underside, end.position[:2]) + _DROP)),)

    yield move(scene, Phase.PLACE, lowering, CLOSED, holding=obj)
    yield motions.release(scene, Phase.PLACE)
    if not stays:
        yield _retreat(scene)


def lift(scene: ExpertScene, obj: str, target: str, until: Callable[[], bool]) -> Skill:
    """Pick up an object and raise it high above a target, until a condition holds.

    The hand waits only at the top, and one that has just put the object down grasps it where it is: what it
    does next follows from what it sees and remembers. A policy learns to hold still wherever the hand does.
    """
    tried: list[Grasp] = []
    while not until():
        if not _is_around(scene, obj):
            tried.append(_best_grasp(scene, obj, tried))
            yield _approach(scene, obj, tried[-1])
        yield from motions.grab(scene, obj)
        if not holds(scene, obj):
            yield _retreat(scene)
            continue
        up = scene.gripper.at_height(scene.position(target)[2] + _HIGHEST)
        path = (Waypoint(pose=up, near=0.0),)
        rising = move(scene, Phase.CARRY, path, CLOSED)
        yield dataclasses.replace(  # until it is dropped; a thin wall between the fingers is not nothing
            rising,
            interrupted=lambda: (
                (scene.opening < motions.CLOSED_ON_NOTHING and not holds(scene, obj)) or until()
            ),
        )


def leave_alone(scene: ExpertScene, obj: str) -> GripperMotion:
    """Let go of an object, raise the hand above it, and stay there."""
    height = scene.position(obj)[2] + _OUT_OF_THE_WAY
    if scene.fingers_touching(obj) or scene.gripper.position[2] > height - CORNER:
        return motions.release(scene, Phase.DONE)
    path = (Waypoint(pose=scene.gripper.at_height(height), near=CORNER),)
    return move(scene, Phase.DONE, path, OPEN)


def _is_around(scene: ExpertScene, obj: str) -> bool:
    """Whether the fingers are where one of an object's grasps has them."""
    here = Grasp(pose=scene.gripper.seen_from(scene.pose(obj)), cost=0.0)
    return any(not grasp.differs_from(here) for grasp in _grasps(scene, obj, np.zeros(3)))


def _grasps(scene: ExpertScene, obj: str, shift: Vector3) -> list[Grasp]:
    """All grasps of an object from above, best first, once it has moved by a shift (m)."""
    return gripper.find_grasps(
        gripper.FROM_ABOVE,
        scene.surface(obj) + shift,
        scene.surroundings(obj),
        frame=scene.pose(obj).shifted(shift),
        center_of_mass=scene.center_of_mass(obj) + shift,
    )


def _retreat(scene: ExpertScene) -> GripperMotion:
    start = scene.gripper
    path = (Waypoint(pose=start.at_height(start.position[2] + _RETREAT), near=CORNER),)
    return move(scene, Phase.RETREAT, path, OPEN)


def _approach(scene: ExpertScene, obj: str, grasp: Grasp) -> GripperMotion:
    start, met = scene.gripper, _predicted_shift(scene, obj)
    goal = _grasp_pose(scene, obj, grasp).shifted(met)
    if scene.predicted_motion(obj) is None and motions.can_go_straight(scene, goal):
        return move(scene, Phase.APPROACH, (Waypoint(pose=goal),), OPEN)
    obstacles = np.concatenate([scene.surroundings(), scene.surface(obj) + met])
    terrain = Terrain(obstacles, start=start.position[:2], end=goal.position[:2])
    height = terrain.lowest_along(underside_of(goal, opening=FULLY_OPEN)) + _MARGIN
    up = start.at_height(max(start.position[2], height))

    def path() -> motions.Path:
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

    def cost(grasp: Grasp) -> float:
        way = frame.to_world(grasp.pose.position) - scene.base.position
        return grasp.cost + _REACH_COST * float(np.linalg.norm(way[:2]))

    def is_fresh(grasp: Grasp) -> bool:
        return sum(not grasp.differs_from(other) for other in tried) < _TRIES_OF_A_GRASP

    straight = Pose(position=frame.to_local(center), rotation=frame.rotation.T @ downward(np.pi / 2))
    fallback = Grasp(pose=straight, cost=np.inf)
    return min(filter(is_fresh, _grasps(scene, obj, met)), key=cost, default=fallback)


def _grasp_pose(scene: ExpertScene, obj: str, grasp: Grasp) -> Pose:
    """The grasp in the world, pointing down even if the object has tilted.

    Its rotation is in a fixed half turn, so that demonstrations of similar states agree.
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
    return ahead(way / motions.METRES_PER_STEP * motions.CONTROL_SECONDS + _LOWERING_S)


def _underside(scene: ExpertScene, obj: str) -> Points:
    """The underside of gripper and held object, with room for the fingers to open."""
    return underside_of(scene.gripper, opening=scene.opening, widest=FULLY_OPEN, held=scene.surface(obj))


def _best_spot(scene: ExpertScene, obj: str, target: str) -> XY:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Insertion:
    """A grasp and the gripper poses of an insertion."""

    grasp: Grasp  # in the object's frame
    before: Pose  # gripper pose in line with the grasp
    grasping: Pose  # gripper pose at the grasp
    outside: Pose  # gripper pose in front of the region, at insertion height
    inside: Pose  # gripper pose at the end of the insertion


def insertion(scene: ExpertScene, obj: str, target: str, tried: Sequence[Grasp]) -> Insertion | None:
    """The best reachable insertion from the side; None if none is needed, or all grasps were tried."""
    region = scene.region(target)
    if region is None or not is_covered(scene, target) or holds(scene, obj):
        return None
    frame, reach, body = scene.pose(obj), scene.reach(), scene.body(obj)
    first = _heading(region.pose.rotation[:, 0])
    headings = [first + 2 * np.pi * way / _WAYS for way in range(_WAYS)]
    ways = [way for heading in headings if (way := _InsertionPath(scene, obj, region, heading)).is_open()]
    for grasp in _tilted_grasps(scene, obj) if ways else ():
        if not all(grasp.differs_from(other) for other in tried):
            continue
        grasping = frame.after(grasp.pose)
        before = grasping.backed_off(_BACK)
        arm = reach.along([before, grasping], beside=body)
        if arm is None:
            continue
        holding = body, frame.seen_from(grasping)
        for way in ways:
            if (inside := way.end(grasping)) is None:
                continue
            outside = way.begin(inside, grasping)
            if reach.along([outside, inside], start=arm[-1], holding=holding) is not None:
                return Insertion(
                    grasp=grasp, before=before, grasping=grasping, outside=outside, inside=inside
                )
    return None


def insert(scene: ExpertScene, obj: str, plan: Insertion) -> Skill:
    """Grasp an object, insert it from the side, release it, and move out the same way."""
    start = scene.gripper
    height = max(_travel_height(scene, plan.before), start.position[2])
    path = (
        Waypoint(pose=start.at_height(height), near=CORNER, aligned=np.pi),
        Waypoint(pose=plan.before.at_height(height), near=0.02),
        Waypoint(pose=plan.before, near=0.01),
        Waypoint(pose=plan.grasping),
    )
    yield move(scene, Phase.APPROACH, path, OPEN)
    yield from motions.grab(scene, obj)
    if holds(scene, obj):
        height = _travel_height(scene, plan.outside, held=obj)
        path = (
            Waypoint(pose=scene.gripper.at_height(height), near=CORNER, aligned=np.pi),
            Waypoint(pose=plan.outside.at_height(height), near=0.01),
            Waypoint(pose=plan.outside, near=0.005, aligned=0.06),
        )
        yield move(scene, Phase.CARRY, path, CLOSED, holding=obj)
    if holds(scene, obj):
        path = (Waypoint(pose=plan.inside, near=0.008),)
        yield move(scene, Phase.PLACE, path, CLOSED, holding=obj)
        down = scene.gripper.at_height(scene.gripper.position[2] - _DOWN)
        yield move(scene, Phase.PLACE, (Waypoint(pose=down),), CLOSED, holding=obj)
    yield motions.release(scene, Phase.PLACE)
    out = scene.gripper.shifted(plan.outside.position - plan.inside.position)
    yield move(scene, Phase.RETREAT, (Waypoint(pose=out, near=CORNER),), OPEN)


def is_covered(scene: ExpertScene, target: str) -> bool:
    """Whether a fixture covers the middle of a region, so that objects cannot be put in from above."""
    region = scene.region(target)
    if region is None or region.half_along(_UP) < _FLAT:
        return False
    points = scene.surroundings(*scene.movable - {scene.owner(target)})
    over = points - region.pose.position
    column = over[np.linalg.norm(over[:, :2], axis=1) < _COLUMN]
    ceiling = max(region.half_along(_UP) / 2, _CEILING)
    return bool(len(column) and column[:, 2].max() > ceiling)


class _InsertionPath:
    """A straight, horizontal path into a region along one heading."""

    def __init__(self, scene: ExpertScene, obj: str, region: Box, heading: float) -> None:
        self._region, self._heading = region, heading
        self._along = np.array([np.cos(heading), np.sin(heading), 0.0])
        # Rows: across the path, up, and against the path, which replaces up in the height map.
        self._aside = np.array([-self._along[1], self._along[0], 0.0])
        self._turn = np.stack([self._aside, np.cross(-self._along, self._aside), -self._along])
        self._frame, self._obj = scene.pose(obj), scene.surface(obj)
        self._surroundings = scene.surroundings(obj)
        middle = (self._turn @ region.pose.position)[:2]
        self._terrain = Terrain(self._surroundings @ self._turn.T, start=middle, end=middle)

    def is_open(self) -> bool:
        """Whether the object alone fits in, with its current rotation."""
        return self._end(self._frame.rotation, np.zeros((0, 3))) is not None

    def end(self, grasping: Pose) -> Pose | None:
        """The final gripper pose for a grasp, rotated to point along the path; None if it does not fit."""
        grip = grasping.seen_from(self._frame)
        angle = self._heading - _heading(grasping.rotation[:, 2])
        cos, sin = np.cos(angle), np.sin(angle)
        rotation = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]]) @ self._frame.rotation
        hand = Pose(position=np.zeros(3), rotation=rotation).after(grip)
        end = self._end(rotation, hand.to_world(gripper.gripper_surface(opening=FULLY_OPEN)))
        return None if end is None else end.after(grip)

    def begin(self, inside: Pose, grasping: Pose) -> Pose:
        """The gripper pose before the insertion, at which the held object can be reached from above."""
        held = inside.to_world(grasping.to_local(self._obj))
        underside = underside_of(inside, opening=FULLY_OPEN, held=held)
        end, height = inside.position[:2], inside.position[2]
        start = end - _FARTHEST_OUT * self._along[:2]
        terrain = Terrain(self._surroundings, start=start, end=end)
        for distance in np.arange(0.0, _FARTHEST_OUT, _SPACING):
            place = end - distance * self._along[:2]
            if terrain.lowest(underside, place) <= height:
                start = place - _SPACING * self._along[:2]
                break
        return Pose(position=np.array([*start, height]), rotation=inside.rotation)

    def _end(self, rotation: Matrix3, hand: Points) -> Pose | None:
        """The object's pose at the end of the path, with a rotation; None if it does not fit.

        The hand's points are relative to the object's position, in world axes.
        """
        obj, center = self._frame.to_local(self._obj) @ rotation.T, self._region.pose.position
        low = self._surroundings[self._surroundings[:, 2] < center[2]]
        ground = Terrain(low, start=center[:2], end=center[:2])
        height = ground.lowest(lowest_points(obj), center[:2]) + _HOVER
        underside = lowest_points(np.concatenate([obj, hand]) @ self._turn.T)
        middle = self._turn @ center
        wide, deep = (self._region.half_along(axis) - _FROM_THE_SIDE for axis in (self._aside, self._along))
        level = float((self._turn @ np.array([0.0, 0.0, height]))[1])
        for gap in _ASIDE:
            for aside in sorted(np.arange(-wide, wide + 1e-9, _SPACING), key=abs):
                places = [np.array([middle[0] + aside + step, level]) for step in (-gap, 0.0, gap)]
                depth = max(self._terrain.lowest(underside, place) for place in places) + _FROM_THE_BACK
                depth = max(depth, middle[2])
                if depth <= middle[2] + deep:
                    position = self._turn.T @ np.array([*places[1], depth])
                    return Pose(position=position, rotation=rotation)
        return None


def _tilted_grasps(scene: ExpertScene, obj: str) -> list[Grasp]:
    """A few different grasps from each heading, best first."""
    frame, center = scene.pose(obj), scene.center_of_mass(obj)
    surface, surroundings = scene.surface(obj), scene.surroundings(obj)
    found: list[Grasp] = []
    for tilt in _TILTS:
        for heading in _HEADINGS:
            turn, kept = gripper.pointing(float(heading), float(tilt)), []
            for grasp in gripper.find_grasps(
                [turn], surface, surroundings, frame=frame, center_of_mass=center
            ):
                if len(kept) < _PER_TURN and all(grasp.differs_from(other) for other in kept):
                    kept.append(grasp)
            found += kept
    return sorted(found, key=lambda grasp: grasp.cost)


def _heading(direction: Vector3) -> float:
    return float(np.arctan2(direction[1], direction[0]))


def _travel_height(scene: ExpertScene, end: Pose, held: str | None = None) -> float:
    """Height (m) at which the gripper moves above another pose, rotating on the way."""
    start, hidden = scene.gripper, [held] if held else []
    local = start.to_local(scene.surface(held)) if held else np.zeros((0, 3))
    terrain = Terrain(scene.surroundings(*hidden), start=start.position[:2], end=end.position[:2])
    turn = start.twist_to(end) * np.repeat([0.0, 1.0], 3)
    poses = (
        start.moved(share * turn)
        for share in np.linspace(0.0, 1.0, int(np.linalg.norm(turn) / _TURN_STRIDE) + 2)
    )
    undersides = (underside_of(pose, opening=FULLY_OPEN, held=pose.to_world(local)) for pose in poses)
    return max(map(terrain.lowest_along, undersides)) + _MARGIN
