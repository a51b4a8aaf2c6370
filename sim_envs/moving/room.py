"""How far a thing can be moved on what it stands on, without coming near anything else or an edge."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from scipy.spatial import KDTree

from sim_envs.scripted.poses import Vector3
from sim_envs.scripted.surfaces import HeightMap, Points

_CELL = 0.01
"""Side (m) of the cells in which the ground is seen: the surfaces of large things are sampled every 0.008."""

_LEVEL = 0.006
"""What rises no more than this (m) above what the thing stands on, or lies no deeper, belongs to it."""

_CLEARANCE = 0.03
"""How near (m) it comes to other things and to edges: fingers still find room there."""

_LEAST_CLEARANCE = 0.004
"""If it begins nearer than this (m), it can only go away."""

_ROUNDED = 0.002
"""How much nearer than at first (m) may be due to surfaces being seen as points."""

_LOOK = 0.35
"""How far (m) around the thing the scene is looked at."""

_STRIDE = 0.005
"""Distance (m) between the places looked at along a way."""

_XY = Float64[np.ndarray, "_ 2"]


class Room:
    """The surroundings of a thing, as it stands."""

    def __init__(self, thing: Points, others: Points, *, may_be_at: Callable[[Vector3], bool]) -> None:
        """Look around.

        Args:
            thing: Points on the thing's surface, in world coordinates.
            others: Points on everything else but the robot.
            may_be_at: Whether its middle may be at a place (m).
        """
        self._center = (thing.min(axis=0) + thing.max(axis=0)) / 2
        self._may_be_at = may_be_at
        self._footprint = _thinned(thing[:, :2])
        self._limits = KDTree(_limits(others, self._center[:2], ground=float(thing[:, 2].min())))
        self._at_first = self._clearance(np.zeros(3))

    def along(self, way: Vector3, most: float) -> float:
        """How far (m) the thing can go along a horizontal direction, and `most` at most."""
        free = 0.0
        for place in np.arange(1, math.ceil(most / _STRIDE) + 1) * _STRIDE:
            if not self._is_free(place * way):
                break
            free = min(float(place), most)
        return free

    def _is_free(self, step: Vector3) -> bool:
        if not self._may_be_at(self._center + step):
            return False
        needed = max(min(self._at_first - _ROUNDED, _CLEARANCE), _LEAST_CLEARANCE)
        if self._at_first < _LEAST_CLEARANCE:
            needed = min(self._at_first + float(np.linalg.norm(step)) / 2, _LEAST_CLEARANCE)
        return self._clearance(step) >= needed

    def _clearance(self, step: Vector3) -> float:
        """How far (m) the thing is from anything that limits it, moved by a step."""
        return float(self._limits.query(self._footprint + step[:2])[0].min())


def _limits(others: Points, center: Float64[np.ndarray, " 2"], *, ground: float) -> _XY:
    """What rises above the ground, and where there is no ground, seen from above (m)."""
    near = others[np.abs(others[:, :2] - center).max(axis=1) < _LOOK]
    above = near[near[:, 2] > ground + _LEVEL]
    level = near[np.abs(near[:, 2] - ground) <= _LEVEL]
    seen = HeightMap.over(level, center=center, reach=_LOOK, cell=_CELL)
    gaps = np.argwhere(seen.top < ground - _LEVEL)
    return np.concatenate([_thinned(above[:, :2]), seen.origin + (gaps + 0.5) * _CELL])


def _thinned(points: _XY) -> _XY:
    """One of the points in every quarter of a cell that holds any."""
    _, first = np.unique(np.floor(points / (_CELL / 2)).astype(np.int64), axis=0, return_index=True)
    return points[first]
