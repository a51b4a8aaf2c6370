"""How high the gripper must be to pass over things, and how low it can come down among them."""

import dataclasses

import numpy as np
from jaxtyping import Float64

from sim_envs.experts.gripper import PANDA, GripperShape
from sim_envs.experts.poses import Pose
from sim_envs.experts.surfaces import HeightMap, Points, rectangle

_CELL = 0.005
_STRIDE = 0.02
"""Distance (m) between the places looked at along a way."""

_SURROUND = 0.3
"""How far (m) beyond a way's ends the scene is looked at."""

_WAY_OUT = 0.12
"""How far (m) a thing is pulled sideways at most, to get it out from under something."""

_DIRECTIONS = 24

XY = Float64[np.ndarray, " 2"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Underside:
    """What moves, seen from below.

    Attributes:
        points: The lowest points, relative to the grip site, in world axes.
    """

    points: Points

    @classmethod
    def of(
        cls,
        gripper: Pose,
        *,
        opening: float,
        widest: float | None = None,
        held: Points | None = None,
        shape: GripperShape = PANDA,
    ) -> "Underside":
        """That of a gripper and of what it holds.

        Args:
            gripper: The pose of the grip site.
            opening: The distance between the finger pads (m).
            widest: What that distance may grow to (m), if the fingers are going to open.
            held: Points on what is held.
            shape: The gripper.
        """
        inner, more = opening / 2, ((widest or opening) / 2) - shape.inner
        parts = [
            *_fingers(inner, shape.outer + more, shape.tip, shape=shape),
            *_fingers(inner, shape.thick_outer + more, shape.tip - shape.thick, shape=shape),
            rectangle(center=(0.0, 0.0), half=shape.hand, height=-shape.palm, spacing=_CELL),
        ]
        points = np.concatenate(parts) @ gripper.rotation.T
        if held is not None:
            points = np.concatenate([points, held - gripper.position])
        return cls(points=_lowest_per_cell(points))


class Terrain:
    """The tops of everything that stands along a straight way, seen from above."""

    def __init__(self, surroundings: Points, *, start: XY, end: XY) -> None:
        self._start, self._end = start, end
        reach = float(np.abs(end - start).max()) / 2 + _SURROUND
        tops = HeightMap.over(surroundings, center=(start + end) / 2, reach=reach, cell=_CELL)
        # A point stands for its neighbours too: the surface between the points is nowhere seen.
        self._tops = tops.widened()

    def lowest(self, underside: Underside, place: XY) -> float:
        """How low (m, height of the grip site) something comes down over a place before it touches."""
        cells = self._tops.cells_of(underside.points[:, :2] + place)
        tops = self._tops.top[cells[:, 0], cells[:, 1]]
        return float((tops - underside.points[:, 2]).max())

    def lowest_along(self, underside: Underside) -> float:
        """How low (m) something travels from start to end before it touches anything on the way."""
        way = self._end - self._start
        count = int(np.ceil(np.linalg.norm(way) / _STRIDE)) + 2
        places = self._start + np.linspace(0.0, 1.0, count)[:, None] * way
        return max(self.lowest(underside, place) for place in places)

    def nearest_open(self, underside: Underside, place: XY, height: float) -> XY:
        """The place nearest to a given one where nothing is above what moves at a height (m).

        The given place itself if there is none within reach.
        """
        for distance in np.arange(0.0, _WAY_OUT, _STRIDE / 2):
            for angle in np.arange(_DIRECTIONS) * 2 * np.pi / _DIRECTIONS:
                there = place + distance * np.array([np.cos(angle), np.sin(angle)])
                if self.lowest(underside, there) <= height:
                    return there
        return place


def _fingers(inner: float, outer: float, height: float, *, shape: GripperShape) -> list[Points]:
    """The undersides of both fingers, from an inner to an outer face."""
    middle, half = (inner + outer) / 2, ((outer - inner) / 2, shape.half_width)
    return [
        rectangle(center=(side * middle, 0.0), half=half, height=height, spacing=_CELL) for side in (-1, 1)
    ]


def _lowest_per_cell(points: Points) -> Points:
    """Of the points over each cell of the plan, the lowest."""
    order = np.argsort(points[:, 2], kind="stable")
    cells = np.floor(points[order, :2] / _CELL).astype(np.int64)
    _, first = np.unique(cells, axis=0, return_index=True)
    return points[order][first]
