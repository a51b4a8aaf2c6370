"""Chooses where in a region to place a held object: the center, or beside other objects."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64
from scipy.spatial import KDTree

from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.scripted.clearance import XY, Terrain
from sim_envs.scripted.surfaces import Points

_FROM_THE_EDGE = 0.01
"""Minimal distance (m) of an object's position from the region's edge."""

_SPACING = 0.01
"""Distance (m) between candidate spots."""

_LEVEL = 0.01
"""Spots whose heights differ by up to this (m) count as level."""

_GAPS = (0.02, 0.012, 0.006, 0.0)
"""Clearances (m) between objects, tried in this order."""

_AROUND = np.array([[np.cos(a), np.sin(a)] for a in np.arange(8) * np.pi / 4])


class Spots:
    """Candidate placements of a held object on a target."""

    def __init__(self, scene: ExpertScene, obj: str, target: str, underside: Points) -> None:
        """Prepare the search.

        Args:
            scene: The scene.
            obj: The held object.
            target: An object or region.
            underside: Points of gripper and held object, relative to the grip site.
        """
        self._scene, self._obj, self._target, self._underside = scene, obj, target, underside
        self._middle = scene.position(target)[:2]
        self._offset = scene.gripper.position[:2] - scene.position(obj)[:2]
        fixed = scene.movable - {scene.owner(target)}
        self._fixed = self._terrain(scene.surroundings(obj, *fixed))
        self._everything = self._terrain(scene.surroundings(obj))

    def best(self) -> XY:
        """The object's position relative to the target's center (m): the nearest free spot, if any."""
        region = self._scene.region(self._target)
        if region is None:
            return np.zeros(2)
        level_axes = region.pose.rotation[:2, :2]
        spots = self._level(_grid(np.maximum(region.half[:2] - _FROM_THE_EDGE, 0.0)) @ level_axes.T)
        for gap in _GAPS:
            fitting = [spot for spot in spots if self._is_free(spot, gap) and self._leaves_room(spot, gap)]
            if fitting:
                return fitting[0]
        return np.zeros(2)

    def _terrain(self, points: Points) -> Terrain:
        return Terrain(points, start=self._middle, end=self._middle)

    def _place(self, spot: XY) -> XY:
        return self._middle + self._offset + spot

    def _level(self, spots: Float64[np.ndarray, "n 2"]) -> list[XY]:
        """Spots as low as the center, nearest first; of equally near ones, those farther from the robot."""
        lowest = self._fixed.lowest(self._underside, self._place(np.zeros(2))) + _LEVEL
        away = self._middle - self._scene.base.position[:2]
        distance = np.round(np.linalg.norm(spots, axis=1), 6)
        order = np.lexsort(np.stack([-spots @ away, distance]))
        return [
            spot for spot in spots[order] if self._fixed.lowest(self._underside, self._place(spot)) <= lowest
        ]

    def _is_free(self, spot: XY, gap: float) -> bool:
        """Whether no movable object is within a gap (m)."""
        return all(
            self._everything.lowest(self._underside, self._place(spot) + step)
            <= self._fixed.lowest(self._underside, self._place(spot) + step) + _LEVEL
            for step in gap * np.concatenate([np.zeros((1, 2)), _AROUND])
        )

    def _leaves_room(self, spot: XY, gap: float) -> bool:
        """Whether the other objects for this target still fit on the other side of its center."""
        mine = self._footprint(self._obj) + spot
        return all(
            _apart(mine, self._footprint(other) - spot) > gap
            for other in _still_to_come(self._scene, self._obj, self._target)
        )

    def _footprint(self, obj: str) -> Float64[np.ndarray, "n 2"]:
        """An object's points in the horizontal plane, relative to its position."""
        return self._scene.surface(obj)[:, :2] - self._scene.position(obj)[:2]


def _still_to_come(scene: ExpertScene, obj: str, target: str) -> Sequence[str]:
    """Other objects that goals require at a target and that are not yet there."""
    return [
        goal.arguments[0]
        for goal in scene.goals
        if goal.arguments[1:] == (target,) and goal.arguments[0] != obj and not scene.satisfied(goal)
    ]


def _grid(half: Float64[np.ndarray, " 2"]) -> Float64[np.ndarray, "n 2"]:
    """Evenly spaced spots in a rectangle about the origin, including the origin."""
    axes = [np.arange(-int(h / _SPACING), int(h / _SPACING) + 1) * _SPACING for h in half]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


def _apart(one: Float64[np.ndarray, "n 2"], other: Float64[np.ndarray, "m 2"]) -> float:
    """Distance (m) between two point sets in the plane."""
    return float(KDTree(one).query(other)[0].min())
