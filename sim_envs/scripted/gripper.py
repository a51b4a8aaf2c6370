"""The shape of the gripper and the hand, in the frame of the grip site, and where they have room."""

import dataclasses
import functools
import math
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float64

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
    # Distance of an open finger's outer face from the center, in the thicker part.
    thick_outer: float = 0.0655
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
    """Rotation of a gripper that points towards a heading, tilted up from straight down (rad).

    It closes horizontally, across its heading.
    """
    z = np.array([math.sin(tilt) * math.cos(heading), math.sin(tilt) * math.sin(heading), -math.cos(tilt)])
    return hand_rotation(np.array([-math.sin(heading), math.cos(heading), 0.0]), z)


FULLY_OPEN = 2 * PANDA.inner

FIST_HALF = (PANDA.outer - PANDA.inner, PANDA.half_width)
"""Half the sides (m) of two closed fingers, along the closing direction and across it."""

_HAND_DEPTH = 0.066
_WRIST_HALF = 0.05
_WRIST_DEPTH = 0.11  # sizes (m) of Franka's hand and the last link above it

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


def hand_underside(pose: Pose, opening: float) -> Points:
    """The underside of a hand with any rotation."""
    return _surfaces(hand_bounds(opening), _SPACING) @ pose.rotation.T


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

    Args:
        gripper: Pose of the grip site.
        opening: Distance between the finger pads (m).
        widest: Largest distance (m), if the fingers are going to open.
        held: Points on the held object.
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
        """The nearest position with nothing above what moves at a height (m).

        The given position if there is none within `_WAY_OUT`.
        """
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
