"""Plans how to grasp an object and insert it from the side, under a ceiling.

Inserting is lowering, turned on its side: with the insertion direction as down, a height map of the scene
gives the depth to which the gripper and the held object can go.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.scripted.clearance import Terrain, gripper_surface, lowest_points, underside_of
from sim_envs.scripted.grasps import Grasp, grasps_turned
from sim_envs.scripted.gripper import PANDA, pointing
from sim_envs.scripted.kinematics import HeldObject
from sim_envs.scripted.poses import Box, Matrix3, Pose, Vector3
from sim_envs.scripted.surfaces import Points

_TILTS = np.radians(np.arange(30.0, 91.0, 15.0))
_HEADINGS = np.radians(np.arange(-180.0, 180.0, 30.0))
_PER_TURN = 2
"""Number of grasps checked for each rotation."""

_WAYS = 4
"""Number of directions into a region that are checked: across its sides."""

_HOVER = 0.012
"""Height (m) above the ground at which an object is inserted; surface points are 5 mm apart."""

_FROM_THE_EDGE = 0.012
"""Minimal distance (m) of an object's position from the region's edge."""

_FROM_THE_BACK = 0.01
"""Clearance (m) at the end of the insertion."""

_ASIDE = (0.015, 0.005, 0.0)
"""Clearances (m) at both sides, tried in this order."""

_SPACING = 0.01

_UP = np.array([0.0, 0.0, 1.0])

_COLUMN = 0.012
_CEILING = 0.02
"""Surfaces within this horizontal distance (m) of a region's center, this far (m) above, are a ceiling."""

_FLAT = 0.01
"""Regions up to this half height (m) are surfaces."""

_BACK = 0.06
"""Distance (m) before a grasp at which the gripper is in line with it."""

_FARTHEST_OUT = 0.4
"""Maximal length (m) of an insertion."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Insertion:
    """A grasp and the gripper poses of an insertion.

    Attributes:
        grasp: The grasp, in the object's frame.
        before: Gripper pose in line with the grasp.
        grasping: Gripper pose at the grasp.
        outside: Gripper pose in front of the region, at insertion height.
        inside: Gripper pose at the end of the insertion.
    """

    grasp: Grasp
    before: Pose
    grasping: Pose
    outside: Pose
    inside: Pose


def is_covered(scene: ExpertScene, target: str) -> bool:
    """Whether a fixture covers the middle of a region, so that objects cannot be put in from above."""
    region = scene.region(target)
    if region is None or _half_along(region, _UP) < _FLAT:
        return False
    points = scene.surroundings(*scene.movable - {scene.owner(target)})
    over = points - region.pose.position
    column = over[np.linalg.norm(over[:, :2], axis=1) < _COLUMN]
    ceiling = max(_half_along(region, _UP) / 2, _CEILING)
    return bool(len(column) and column[:, 2].max() > ceiling)


def insertions(scene: ExpertScene, obj: str, target: str) -> Iterator[Insertion]:
    """Reachable and collision-free insertions, best grasps first."""
    region = scene.region(target)
    assert region is not None
    frame, reach, body = scene.pose(obj), scene.reach(), scene.body(obj)
    first = _heading(region.pose.rotation[:, 0])
    headings = [first + 2 * np.pi * way / _WAYS for way in range(_WAYS)]
    ways = [way for heading in headings if (way := _InsertionPath(scene, obj, region, heading)).is_open()]
    for grasp in _grasps(scene, obj) if ways else ():
        grasping = frame.after(grasp.pose)
        before = grasping.backed_off(_BACK)
        arm = reach.along([before, grasping], beside=body)
        if arm is None:
            continue
        holding = HeldObject(body=body, grip=frame.seen_from(grasping))
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
        rotation = _about_up(self._heading - _heading(grasping.rotation[:, 2])) @ self._frame.rotation
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
        """The object's pose at the end of the path; None if it does not fit into the region.

        Args:
            rotation: Rotation of the object.
            hand: Points of the hand relative to the object's position, in world axes.
        """
        obj = self._frame.to_local(self._obj) @ rotation.T
        height = self._ground(obj) + _HOVER
        underside = lowest_points(np.concatenate([obj, hand]) @ self._turn.T)
        position = self._nearest_to_the_middle(underside, height)
        return None if position is None else Pose(position=position, rotation=rotation)

    def _nearest_to_the_middle(self, underside: Points, height: float) -> Vector3 | None:
        middle = self._turn @ self._region.pose.position
        wide, deep = (_half_along(self._region, axis) - _FROM_THE_EDGE for axis in (self._aside, self._along))
        level = float((self._turn @ np.array([0.0, 0.0, height]))[1])
        for gap in _ASIDE:
            for aside in sorted(np.arange(-wide, wide + 1e-9, _SPACING), key=abs):
                places = [np.array([middle[0] + aside + step, level]) for step in (-gap, 0.0, gap)]
                depth = max(self._terrain.lowest(underside, place) for place in places) + _FROM_THE_BACK
                depth = max(depth, middle[2])
                if depth <= middle[2] + deep:
                    return self._turn.T @ np.array([*places[1], depth])
        return None

    def _ground(self, obj: Points) -> float:
        """Height (m) of the object's position when it stands in the region."""
        middle = self._region.pose.position
        low = self._surroundings[self._surroundings[:, 2] < middle[2]]
        terrain = Terrain(low, start=middle[:2], end=middle[:2])
        return terrain.lowest(lowest_points(obj), middle[:2])


def _grasps(scene: ExpertScene, obj: str) -> list[Grasp]:
    """Tilted grasps from all headings, best first."""
    frame, center = scene.pose(obj), scene.center_of_mass(obj)
    surface, surroundings = scene.surface(obj), scene.surroundings(obj)
    found: list[Grasp] = []
    for tilt in _TILTS:
        for heading in _HEADINGS:
            turn = pointing(float(heading), float(tilt))
            grasps = grasps_turned([turn], surface, surroundings, frame=frame, center_of_mass=center)
            found += _best_different(grasps)
    return sorted(found, key=lambda grasp: grasp.cost)


def _best_different(grasps: Sequence[Grasp]) -> list[Grasp]:
    """The first few that differ from each other."""
    kept: list[Grasp] = []
    for grasp in grasps:
        if len(kept) < _PER_TURN and all(grasp.differs_from(other) for other in kept):
            kept.append(grasp)
    return kept


def _half_along(region: Box, axis: Vector3) -> float:
    """Half the extent (m) of a region along an axis of the world."""
    return float(np.abs(axis @ region.pose.rotation) @ region.half)


def _heading(direction: Vector3) -> float:
    return float(np.arctan2(direction[1], direction[0]))


def _about_up(angle: float) -> Matrix3:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
