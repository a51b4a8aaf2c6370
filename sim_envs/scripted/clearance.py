"""How high the gripper must be to pass over things, and how low it can come down among them."""

import dataclasses

import numpy as np
from jaxtyping import Float64

from sim_envs.scripted.gripper import PANDA, GripperShape
from sim_envs.scripted.poses import Pose
from sim_envs.scripted.surfaces import HeightMap, Points, box_surface

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
        points: The lowest points, relative to what is moved (the grip site), in world axes.
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
        points = gripper_surface(opening=opening, widest=widest, shape=shape) @ gripper.rotation.T
        if held is not None:
            points = np.concatenate([points, held - gripper.position])
        return cls.around(points)

    @classmethod
    def around(cls, points: Points) -> "Underside":
        """That of anything, from points on it."""
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


def gripper_surface(*, opening: float, widest: float | None = None, shape: GripperShape = PANDA) -> Points:
    """Points on fingers and hand, in the grip site's frame; arguments as for `Underside.of`."""
    inner, more = opening / 2, ((widest or opening) / 2) - shape.inner
    thick = shape.tip - shape.thick
    return np.concatenate(
        [
            *_fingers((inner, shape.outer + more), (thick, shape.tip), shape=shape),
            *_fingers((inner, shape.thick_outer + more), (-shape.palm, thick), shape=shape),
            _box(shape.hand, (-shape.back, -shape.palm)),
        ]
    )


def _fingers(across: tuple[float, float], along: tuple[float, float], *, shape: GripperShape) -> list[Points]:
    """Both fingers between an inner and an outer face and between two distances along the hand's axis."""
    middle, half = sum(across) / 2, ((across[1] - across[0]) / 2, shape.half_width)
    return [_box(half, along) + np.array([side * middle, 0.0, 0.0]) for side in (-1, 1)]


def _box(half: tuple[float, float], along: tuple[float, float]) -> Points:
    """The surface of a box about the hand's axis, between two distances along it."""
    low, high = along
    surface = box_surface(np.array([*half, (high - low) / 2]), _CELL)
    return surface + np.array([0.0, 0.0, (high + low) / 2])


def _lowest_per_cell(points: Points) -> Points:
    """Of the points over each cell of the plan, the lowest."""
    order = np.argsort(points[:, 2], kind="stable")
    cells = np.floor(points[order, :2] / _CELL).astype(np.int64)
    _, first = np.unique(cells, axis=0, return_index=True)
    return points[order][first]
