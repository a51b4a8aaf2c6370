"""The shape of the gripper and the hand, where they have room, and grasps from shapes alone.

Objects are point clouds of their collision surfaces. A gripper pose is a grasp if open fingers and palm are
free of collisions and material is between the pads: a can is grasped across its middle, a carton across its
narrow side, a bowl by its rim, and a mug from the side by its handle.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Float64, Int64

from sim_envs.scripted.poses import Matrix3, Pose, Vector3
from sim_envs.scripted.surfaces import HeightMap, Points, box_surface


@dataclasses.dataclass(frozen=True, kw_only=True)
class GripperShape:
    """A parallel gripper, m from the grip site: z points out of the hand, x from finger to finger.

    The defaults are the extent of robosuite's collision geoms of Franka's hand.
    """

    tip: float = 0.0092  # distance of the fingertips beyond the grip site
    palm: float = 0.031  # distance of the palm behind the grip site
    pad_high: float = 0.0208  # height of the pads above the fingertips
    pad_half_width: float = 0.008  # half the width of a pad, across the closing direction
    inner: float = 0.038  # distance of an open finger's inner face from the center
    outer: float = 0.054  # distance of an open finger's outer face from the center, at the tip
    thick: float = 0.035  # height above the fingertips from which the fingers are thicker
    thick_outer: float = 0.0655  # likewise `outer`, in the thicker part
    half_width: float = 0.0105  # half the width of a finger
    hand: tuple[float, float] = (0.104, 0.032)  # half extents of the hand
    back: float = 0.123  # distance of the back of the hand behind the grip site


PANDA = GripperShape()


def hand_rotation(closing: Vector3, approach: Vector3) -> Matrix3:
    """Rotation of a gripper by its closing and its approach direction."""
    return np.stack([closing, np.cross(approach, closing), approach], axis=1)


def downward(yaw: float) -> Matrix3:
    """Rotation of a gripper that points down and closes along the horizontal direction `yaw` (rad)."""
    return hand_rotation(np.array([math.cos(yaw), math.sin(yaw), 0.0]), np.array([0.0, 0.0, -1.0]))


def pointing(heading: float, tilt: float) -> Matrix3:
    """Rotation of a gripper that points towards a heading, tilted up (rad), and closes across it."""
    z = np.array([math.sin(tilt) * math.cos(heading), math.sin(tilt) * math.sin(heading), -math.cos(tilt)])
    return hand_rotation(np.array([-math.sin(heading), math.cos(heading), 0.0]), z)


FULLY_OPEN = 2 * PANDA.inner
# Half the sides (m) of two closed fingers, along the closing direction and across it.
FIST_HALF = (PANDA.outer - PANDA.inner, PANDA.half_width)
_HAND_DEPTH, _WRIST_HALF, _WRIST_DEPTH = 0.066, 0.05, 0.11  # sizes (m) of Franka's hand and the last link
_SPACING = 0.01
_FINGER_BOXES = 4

_Bounds = Float64[np.ndarray, "boxes 2 3"]


@functools.cache
def hand_bounds(opening: float) -> _Bounds:
    """Lower and upper corners (m) of boxes around fingers, hand and wrist, in the grip site's frame."""
    inner = opening / 2
    thin, thick = PANDA.outer - PANDA.inner, PANDA.thick_outer - PANDA.inner
    hand_top, wrist_top = -PANDA.palm - _HAND_DEPTH, -PANDA.palm - _HAND_DEPTH - _WRIST_DEPTH
    fingers = [
        [(low, -PANDA.half_width, -PANDA.palm), (high, PANDA.half_width, top)]
        for thickness, top in ((thin, PANDA.tip), (thick, PANDA.tip - PANDA.thick))
        for low, high in ((-inner - thickness, -inner), (inner, inner + thickness))
    ]
    hand = [(-PANDA.hand[0], -PANDA.hand[1], hand_top), (PANDA.hand[0], PANDA.hand[1], -PANDA.palm)]
    wrist = [(-_WRIST_HALF, -_WRIST_HALF, wrist_top), (_WRIST_HALF, _WRIST_HALF, hand_top)]
    return np.array([*fingers, hand, wrist])


def has_room(poses: Iterable[Pose], opening: float, obstacles: Points, *, margin: float) -> bool:
    """Whether all obstacles keep the margin (m) to a hand at all of the poses."""
    bounds = hand_bounds(opening) + np.array([[-margin], [margin]])
    return not any(_is_hit(pose.to_local(obstacles), bounds) for pose in poses)


def hand_underside(pose: Pose) -> Points:
    """The underside of an open hand with any rotation."""
    return _surfaces(hand_bounds(FULLY_OPEN), _SPACING) @ pose.rotation.T


def _surfaces(bounds: _Bounds, spacing: float) -> Points:
    """Points on the surfaces of boxes."""
    return np.concatenate([box_surface((high - low) / 2, spacing) + (high + low) / 2 for low, high in bounds])


def fingers_have_room(pose: Pose, opening: float, obstacles: Points) -> bool:
    """Whether no obstacle is within the fingers; a cheap first check."""
    return not _is_hit(pose.to_local(obstacles), hand_bounds(opening)[:_FINGER_BOXES])


def thinned(points: Points, cell: float) -> Points:
    """Thin points to one per cell (m)."""
    cells = np.floor((points - points.min(axis=0)) / cell).astype(np.int64)
    _, first = np.unique(np.ravel_multi_index(tuple(cells.T), cells.max(axis=0) + 1), return_index=True)
    return points[first]


def near(points: Points, center: Vector3, reach: float) -> Points:
    """The points within a distance (m) of a center along every axis."""
    return points[np.all(np.abs(points - center) < reach, axis=1)]


def _is_hit(points: Points, bounds: _Bounds) -> bool:
    x, y, z = points.T
    return any(
        ((x > low[0]) & (x < high[0]) & (y > low[1]) & (y < high[1]) & (z > low[2]) & (z < high[2])).any()
        for low, high in bounds
    )


_CELL = 0.005
_STRIDE = 0.02  # distance (m) between the positions checked along a path
_SURROUND = 0.3  # margin (m) of the height map beyond the ends of a path
_WAY_OUT = 0.12  # longest sideways move (m) to get an object out from under an obstacle
_DIRECTIONS = 24

XY = Float64[np.ndarray, " 2"]


def underside_of(
    gripper: Pose, *, opening: float, widest: float | None = None, held: Points | None = None
) -> Points:
    """The lowest points of a gripper and its held object, relative to the grip site, in world axes.

    `opening` is the distance between the finger pads (m), `widest` the largest one if they are going to open.
    """
    points = gripper_surface(opening=opening, widest=widest) @ gripper.rotation.T
    if held is not None:
        points = np.concatenate([points, held - gripper.position])
    return lowest_points(points)


class Terrain:
    """Height map of everything along a straight path."""

    def __init__(self, surroundings: Points, *, start: XY, end: XY) -> None:
        self._start, self._end = start, end
        reach = float(np.abs(end - start).max()) / 2 + _SURROUND
        tops = HeightMap.over(surroundings, center=(start + end) / 2, reach=reach, cell=_CELL)
        # Widened, since the surface between sampled points is missing.
        self._tops = tops.widened()

    def lowest(self, underside: Points, place: XY) -> float:
        """Lowest height (m) of the grip site above a position without contact."""
        cells = self._tops.cells_of(underside[:, :2] + place)
        tops = self._tops.top[cells[:, 0], cells[:, 1]]
        return float((tops - underside[:, 2]).max())

    def lowest_along(self, underside: Points) -> float:
        """Lowest height (m) of the grip site from start to end without contact."""
        way = self._end - self._start
        count = int(np.ceil(np.linalg.norm(way) / _STRIDE)) + 2
        places = self._start + np.linspace(0.0, 1.0, count)[:, None] * way
        return max(self.lowest(underside, place) for place in places)

    def nearest_open(self, underside: Points, place: XY, height: float) -> XY:
        """The nearest position with nothing above what moves at a height (m); else the given position."""
        for distance in np.arange(0.0, _WAY_OUT, _STRIDE / 2):
            for angle in np.arange(_DIRECTIONS) * 2 * np.pi / _DIRECTIONS:
                there = place + distance * np.array([np.cos(angle), np.sin(angle)])
                if self.lowest(underside, there) <= height:
                    return there
        return place


def gripper_surface(*, opening: float, widest: float | None = None) -> Points:
    """Points on fingers and hand in the frame of the grip site; arguments as for `underside_of`."""
    inner, more = opening / 2, ((widest or opening) / 2) - PANDA.inner
    width, thick = PANDA.half_width, PANDA.tip - PANDA.thick
    fingers = [
        [(low, -width, back), (high, width, front)]
        for outer, back, front in (
            (PANDA.outer + more, thick, PANDA.tip),
            (PANDA.thick_outer + more, -PANDA.palm, thick),
        )
        for low, high in ((-outer, -inner), (inner, outer))
    ]
    hand = [(-PANDA.hand[0], -PANDA.hand[1], -PANDA.back), (*PANDA.hand, -PANDA.palm)]
    return _surfaces(np.array([*fingers, hand]), _CELL)


def lowest_points(points: Points) -> Points:
    """The lowest point of each horizontal cell."""
    order = np.argsort(points[:, 2], kind="stable")
    cells = np.floor(points[order, :2] / _CELL).astype(np.int64)
    _, first = np.unique(cells, axis=0, return_index=True)
    return points[order][first]


_ANOTHER_PLACE, _ANOTHER_YAW = 0.015, 0.4  # grasps at least this far apart (m, rad) are different attempts
_YAWS, _PER_YAW = 12, 80  # yaws over half a turn, and positions evaluated for each
_FINE_CELL = 0.0025  # side (m) of a height map cell
_MARGIN = 0.003  # clearance (m) around fingers and palm
_REACH = 0.13  # radius (m) of the surroundings beyond the object
_DEEPEST, _SHALLOWEST = 0.034, 0.012  # depth (m) of the fingertips below the top of the material between them
_FLAT = 0.0015  # points within this distance (m) of the outermost one are touched together with it

_WIDTH_COST = 0.1  # cost per metre of material between the fingers
_OFFSET_COST = 1.5  # cost per metre by which one finger arrives before the other
_LEVER_COST = 0.4  # cost per metre from the centre of mass, plus its part across the closing direction
_DEPTH_COST = 1.0  # cost per metre of missing depth
_TURN_COST = 0.02  # cost per radian between the closing direction and that of the resting arm
_ROOM = 0.02  # preferred clearance (m) of the fingers beyond the margin
_ROOM_COST = 0.5  # cost per metre by which the fingertips would have to stay higher for it
_HIGHEST = 0.02  # upper bound of that height (m)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grasp:
    """A gripper pose for grasping an object."""

    pose: Pose  # pose of the grip site in the object's frame
    cost: float  # cost for ranking; lower is better

    def differs_from(self, other: "Grasp") -> bool:
        """Whether this is worth trying after the other has failed."""
        return not self.pose.is_within(other.pose, _ANOTHER_PLACE, _ANOTHER_YAW)


# Gripper rotations of grasps from straight above.
FROM_ABOVE = [downward(float(yaw)) for yaw in np.arange(_YAWS) * math.pi / _YAWS]


def find_grasps(
    turns: Iterable[Matrix3], obj: Points, surroundings: Points, *, frame: Pose, center_of_mass: Vector3
) -> list[Grasp]:
    """All grasps found with some gripper rotations, best first.

    Points on the object and on everything else, and its center of mass, are in world coordinates; grasps are
    in the object's frame, so that they stay valid when it moves.
    """
    obj, surroundings = obj - center_of_mass, surroundings - center_of_mass
    reach = float(np.linalg.norm(obj, axis=1).max()) + _REACH
    near = surroundings[np.linalg.norm(surroundings, axis=1) < math.sqrt(3) * reach]
    found = []
    for turn in turns:
        for grasp in _View(obj, near, turn=turn).grasps():
            position = frame.to_local(grasp.pose.position + center_of_mass)
            pose = Pose(position=position, rotation=frame.rotation.T @ grasp.pose.rotation)
            found.append(dataclasses.replace(grasp, pose=pose))
    return sorted(found, key=lambda grasp: grasp.cost)


class _View:
    """The scene in a gripper's frame: x along the closing direction, z against the approach."""

    def __init__(self, obj: Points, surroundings: Points, *, turn: Matrix3) -> None:
        self._turn = turn
        self._upright = turn @ np.diag([1.0, -1.0, -1.0])
        self._obj = obj @ self._upright
        reach = float(np.abs(self._obj[:, :2]).max()) + _REACH

        def seen(points: Points) -> HeightMap:
            return HeightMap.over(points, center=np.zeros(2), reach=reach, cell=_FINE_CELL)

        self._own, self._others = seen(self._obj), seen(surroundings @ self._upright)
        self._all = dataclasses.replace(self._own, top=np.maximum(self._own.top, self._others.top))
        self._turned_away = math.acos(min(abs(float(turn[1, 0])), 1.0))

    def grasps(self) -> Iterator[Grasp]:
        """All feasible grasps with this rotation."""
        material = self._own.under_rectangle((PANDA.inner - _MARGIN, PANDA.pad_half_width))
        between = self._others.under_rectangle((PANDA.inner, PANDA.half_width + _MARGIN))
        free = np.maximum(self._lowest_tips(self._all, _MARGIN), between + _MARGIN)
        tips = np.maximum(free, material - _DEEPEST)
        easy = self._lowest_tips(self._others, _MARGIN + _ROOM)
        cells = np.argwhere(material - tips > _SHALLOWEST)
        for cell in cells[:: max(1, math.ceil(len(cells) / _PER_YAW))]:  # evenly spaced
            grasp = self._close_over(cell, tips, easy)
            if grasp is not None:
                missing = _DEEPEST - (material - tips)[tuple(cell)]
                yield dataclasses.replace(grasp, cost=grasp.cost + _DEPTH_COST * float(missing))

    def _lowest_tips(self, seen: HeightMap, margin: float) -> Float64[np.ndarray, "nx ny"]:
        """The lowest fingertip height with a margin, for every cell as the grasp's center."""

        def under_fingers(outer: float) -> Float64[np.ndarray, "nx ny"]:
            half = ((outer - PANDA.inner) / 2 + margin, PANDA.half_width + margin)
            middle = (PANDA.inner + outer) / 2
            return np.maximum(*(seen.under_rectangle(half, side * middle) for side in (-1, 1)))

        ends, thicker = under_fingers(PANDA.outer), under_fingers(PANDA.thick_outer)
        hand = seen.under_rectangle((PANDA.hand[0] + margin, PANDA.hand[1] + margin))
        return np.maximum.reduce([ends, thicker - PANDA.thick, hand - PANDA.tip - PANDA.palm]) + margin

    def _close_over(
        self,
        cell: Int64[np.ndarray, " 2"],
        tips: Float64[np.ndarray, "nx ny"],
        easy: Float64[np.ndarray, "nx ny"],
    ) -> Grasp | None:
        """The grasp at a cell, centered between the fingers if there is room."""
        (x, y), tip = self._all.center_of(cell), tips[tuple(cell)]
        across, along, height = self._obj.T
        between = (np.abs(across - x) < PANDA.inner) & (np.abs(along - y) < PANDA.pad_half_width)
        touched = self._obj[between & (height > tip) & (height < tip + PANDA.pad_high)]
        if len(touched) == 0:
            return None
        low, high = touched[:, 0].min(), touched[:, 0].max()
        middle = (low + high) / 2
        centered = self._all.cells_of(np.array([[middle, y]]))[0]
        if tips[tuple(centered)] <= tip + _FLAT:
            x, cell = middle, centered
        # Offsets across the closing direction at which the fingers first touch the object.
        offsets = (touched[np.abs(touched[:, 0] - end) < _FLAT, 1].mean() - y for end in (low, high))
        crowded = min(max(float(easy[tuple(cell)]) - float(tip), 0.0), _HIGHEST)
        cost = (
            _WIDTH_COST * (high - low)
            + _OFFSET_COST * abs(middle - x)
            + _LEVER_COST * (math.hypot(middle, y) + abs(y))
            + _TURN_COST * self._turned_away
            + _ROOM_COST * crowded
            + sum(abs(float(offset)) for offset in offsets)
        )
        pose = Pose(position=self._upright @ np.array([x, y, tip + PANDA.tip]), rotation=self._turn)
        return Grasp(pose=pose, cost=float(cost))
