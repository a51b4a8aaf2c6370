"""The skill to insert an object from the side, under a ceiling.

Inserting is lowering, turned on its side: with the insertion direction as down, a height map of the scene
gives the depth to which the gripper and the held object can go.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from sim_envs.libero.experts.motions import CLOSED, CORNER, OPEN, Skill, Waypoint, holds, move
from sim_envs.libero.experts.pick_and_place import grab, release
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.scripted.grasps import Grasp, grasps_turned
from sim_envs.scripted.gripper import PANDA, Terrain, gripper_surface, lowest_points, pointing, underside_of
from sim_envs.scripted.poses import Box, Matrix3, Pose, Vector3
from sim_envs.scripted.surfaces import Points
from sim_envs.truth.ground_truth import Phase

_MARGIN = 0.02  # clearance (m) below the hand and the held object
_DOWN = 0.03  # distance (m) by which an object is lowered before release, unless the ground stops it
_TURN_STRIDE = 0.3  # spacing (rad) of the rotations checked when the gripper rotates on its way

_TILTS = np.radians(np.arange(30.0, 91.0, 15.0))
_HEADINGS = np.radians(np.arange(-180.0, 180.0, 30.0))
_PER_TURN = 2  # number of grasps checked for each rotation
_WAYS = 4  # number of directions into a region that are checked: across its sides
_HOVER = 0.012  # height (m) above the ground at which an object is inserted; surface points are 5 mm apart
_FROM_THE_EDGE = 0.012  # minimal distance (m) of an object's position from the region's edge
_FROM_THE_BACK = 0.01  # clearance (m) at the end of the insertion
_ASIDE = (0.015, 0.005, 0.0)  # clearances (m) at both sides, tried in this order
_SPACING = 0.01
_COLUMN = 0.012  # horizontal distance (m) from a region's center within which surfaces are a ceiling
_CEILING = 0.02  # if they are this far (m) above it
_FLAT = 0.01  # regions up to this half height (m) are surfaces
_BACK = 0.06  # distance (m) before a grasp at which the gripper is in line with it
_FARTHEST_OUT = 0.4  # maximal length (m) of an insertion

_UP = np.array([0.0, 0.0, 1.0])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Insertion:
    """A grasp and the gripper poses of an insertion."""

    grasp: Grasp  # in the object's frame
    before: Pose  # gripper pose in line with the grasp
    grasping: Pose  # gripper pose at the grasp
    outside: Pose  # gripper pose in front of the region, at insertion height
    inside: Pose  # gripper pose at the end of the insertion


def insertion(scene: ExpertScene, obj: str, target: str, tried: Sequence[Grasp]) -> Insertion | None:
    """An insertion of an object from the side; None if none is needed, or all grasps were tried."""
    if not is_covered(scene, target) or holds(scene, obj):
        return None
    plans = insertions(scene, obj, target)
    return next((plan for plan in plans if all(plan.grasp.differs_from(other) for other in tried)), None)


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
    yield from grab(scene, obj)
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
    yield release(scene, Phase.PLACE)
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


def insertions(scene: ExpertScene, obj: str, target: str) -> Iterator[Insertion]:
    """Reachable and collision-free insertions, best grasps first."""
    region = scene.region(target)
    assert region is not None
    frame, reach, body = scene.pose(obj), scene.reach(), scene.body(obj)
    first = _heading(region.pose.rotation[:, 0])
    headings = [first + 2 * np.pi * way / _WAYS for way in range(_WAYS)]
    ways = [way for heading in headings if (way := _InsertionPath(scene, obj, region, heading)).is_open()]
    for grasp in _tilted_grasps(scene, obj) if ways else ():
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
                yield Insertion(grasp=grasp, before=before, grasping=grasping, outside=outside, inside=inside)


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
        end = self._end(rotation, hand.to_world(gripper_surface(opening=2 * PANDA.inner)))
        return None if end is None else end.after(grip)

    def begin(self, inside: Pose, grasping: Pose) -> Pose:
        """The gripper pose before the insertion, at which the held object can be reached from above."""
        held = inside.to_world(grasping.to_local(self._obj))
        underside = underside_of(inside, opening=2 * PANDA.inner, held=held)
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
        """The object's pose at the end of the path, near its middle; None if it does not fit.

        Args:
            rotation: Rotation of the object.
            hand: Points of the hand relative to the object's position, in world axes.
        """
        obj, center = self._frame.to_local(self._obj) @ rotation.T, self._region.pose.position
        low = self._surroundings[self._surroundings[:, 2] < center[2]]
        ground = Terrain(low, start=center[:2], end=center[:2])
        height = ground.lowest(lowest_points(obj), center[:2]) + _HOVER
        underside = lowest_points(np.concatenate([obj, hand]) @ self._turn.T)
        middle = self._turn @ center
        wide, deep = (self._region.half_along(axis) - _FROM_THE_EDGE for axis in (self._aside, self._along))
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
            turn, kept = pointing(float(heading), float(tilt)), []
            for grasp in grasps_turned([turn], surface, surroundings, frame=frame, center_of_mass=center):
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
    undersides = (underside_of(pose, opening=2 * PANDA.inner, held=pose.to_world(local)) for pose in poses)
    return max(map(terrain.lowest_along, undersides)) + _MARGIN
