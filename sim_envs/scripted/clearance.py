"""The height at which the gripper passes over obstacles, and how low it can descend among them."""

import numpy as np
from jaxtyping import Float64

from sim_envs.scripted.gripper import PANDA
from sim_envs.scripted.poses import Pose
from sim_envs.scripted.surfaces import HeightMap, Points, box_surface

_CELL = 0.005
_STRIDE = 0.02
"""Distance (m) between the positions checked along a path."""

_SURROUND = 0.3
"""Margin (m) of the height map beyond the ends of a path."""

_WAY_OUT = 0.12
"""Longest sideways move (m) to get an object out from under an obstacle."""

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
    thick = PANDA.tip - PANDA.thick
    return np.concatenate(
        [
            *_fingers((inner, PANDA.outer + more), (thick, PANDA.tip)),
            *_fingers((inner, PANDA.thick_outer + more), (-PANDA.palm, thick)),
            _box(PANDA.hand, (-PANDA.back, -PANDA.palm)),
        ]
    )


def _fingers(across: tuple[float, float], along: tuple[float, float]) -> list[Points]:
    """Both fingers between an inner and an outer face and between two distances along the hand's axis."""
    middle, half = sum(across) / 2, ((across[1] - across[0]) / 2, PANDA.half_width)
    return [_box(half, along) + np.array([side * middle, 0.0, 0.0]) for side in (-1, 1)]


def _box(half: tuple[float, float], along: tuple[float, float]) -> Points:
    """The surface of a box about the hand's axis, between two distances along it."""
    low, high = along
    surface = box_surface(np.array([*half, (high - low) / 2]), _CELL)
    return surface + np.array([0.0, 0.0, (high + low) / 2])


def lowest_points(points: Points) -> Points:
    """The lowest point of each horizontal cell."""
    order = np.argsort(points[:, 2], kind="stable")
    cells = np.floor(points[order, :2] / _CELL).astype(np.int64)
    _, first = np.unique(cells, axis=0, return_index=True)
    return points[order][first]
