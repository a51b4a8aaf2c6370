"""Free space of an object on its support: the distance to other objects and edges."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from scipy.spatial import KDTree

from sim_envs.scripted.poses import Vector3
from sim_envs.scripted.surfaces import HeightMap, Points

_CELL = 0.01
"""Side (m) of the cells of the ground map: surfaces of large objects are sampled every 0.008."""

_LEVEL = 0.006
"""Surfaces within this height (m) of the support belong to it."""

_CLEARANCE = 0.03
"""Distance (m) kept from other objects and edges, enough for a finger."""

_MIN_CLEARANCE = 0.004
"""An object that starts nearer than this (m) can only move away."""

_ROUNDED = 0.002
"""Tolerance (m) of distances, since surfaces are sampled as points."""

_LOOK = 0.35
"""Radius (m) around the object in which the scene is considered."""

_STRIDE = 0.005
"""Distance (m) between the positions checked along a direction."""

_XY = Float64[np.ndarray, "_ 2"]


class FreeSpace:
    """Free space around an object at its current position."""

    def __init__(self, obj: Points, others: Points, *, may_be_at: Callable[[Vector3], bool]) -> None:
        """Map the surroundings.

        Args:
            obj: Points on the object's surface, in world coordinates.
            others: Points on everything else except the robot.
            may_be_at: Whether the object's center may be at a position (m).
        """
        self._center = (obj.min(axis=0) + obj.max(axis=0)) / 2
        self._may_be_at = may_be_at
        self._footprint = _thinned(obj[:, :2])
        self._limits = KDTree(_limits(others, self._center[:2], ground=float(obj[:, 2].min())))
        self._at_first = self._clearance(np.zeros(3))

    def along(self, way: Vector3, most: float) -> float:
        """Free distance (m) along a horizontal direction, up to `most`."""
        free = 0.0
        for place in np.arange(1, math.ceil(most / _STRIDE) + 1) * _STRIDE:
            if not self._is_free(place * way):
                break
            free = min(float(place), most)
        return free

    def _is_free(self, step: Vector3) -> bool:
        if not self._may_be_at(self._center + step):
            return False
        needed = max(min(self._at_first - _ROUNDED, _CLEARANCE), _MIN_CLEARANCE)
        if self._at_first < _MIN_CLEARANCE:
            needed = min(self._at_first + float(np.linalg.norm(step)) / 2, _MIN_CLEARANCE)
        return self._clearance(step) >= needed

    def _clearance(self, step: Vector3) -> float:
        """Distance (m) to the nearest obstacle or edge after a displacement."""
        return float(self._limits.query(self._footprint + step[:2])[0].min())


def _limits(others: Points, center: Float64[np.ndarray, " 2"], *, ground: float) -> _XY:
    """Obstacles above the ground and cells without ground, in the plane (m)."""
    near = others[np.abs(others[:, :2] - center).max(axis=1) < _LOOK]
    above = near[near[:, 2] > ground + _LEVEL]
    level = near[np.abs(near[:, 2] - ground) <= _LEVEL]
    seen = HeightMap.over(level, center=center, reach=_LOOK, cell=_CELL)
    gaps = np.argwhere(seen.top < ground - _LEVEL)
    return np.concatenate([_thinned(above[:, :2]), seen.origin + (gaps + 0.5) * _CELL])


def _thinned(points: _XY) -> _XY:
    """Thin points to one per quarter of a cell."""
    _, first = np.unique(np.floor(points / (_CELL / 2)).astype(np.int64), axis=0, return_index=True)
    return points[first]
