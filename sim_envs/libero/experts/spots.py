"""Chooses where in a region to place a held object: the center, or beside other objects."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64
from scipy.spatial import KDTree

from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.scripted.clearance import XY, Terrain, Underside
from sim_envs.scripted.surfaces import Points

_FROM_THE_EDGE = 0.01
"""How far (m) inside a region's edge the middle of a thing is kept."""

_SPACING = 0.01
"""Distance (m) between the spots that are looked at."""

_LEVEL = 0.01
"""A spot is as low as another if things come down no more than this (m) above it."""

_GAPS = (0.02, 0.012, 0.006, 0.0)
"""Room (m) left between things, if there is so much; else the next."""

_AROUND = np.array([[np.cos(a), np.sin(a)] for a in np.arange(8) * np.pi / 4])


class Spots:
    """Candidate placements of a held object on a target."""

    def __init__(self, scene: ExpertScene, thing: str, target: str, underside: Underside) -> None:
        """Look at a target.

        Args:
            scene: The scene.
            thing: What is held.
            target: A thing or region.
            underside: Of the gripper and what it holds, relative to the grip site.
        """
        self._scene, self._thing, self._target, self._underside = scene, thing, target, underside
        self._middle = scene.position(target)[:2]
        self._offset = scene.gripper.position[:2] - scene.position(thing)[:2]
        fixed = scene.movable - {scene.owner(target)}
        self._fixed = self._terrain(scene.surroundings(thing, *fixed))
        self._everything = self._terrain(scene.surroundings(thing))

    def best(self) -> XY:
        """Where the thing's own position should come to be, from the target's middle (m).

        The middle, where nothing else is or is to be; else the nearest spot with room; the middle if there
        is none.
        """
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
        """The spots where the thing comes down as low as in the middle, from the middle outwards.

        Among spots that are as near, the one farther from the robot comes first, for the arm is then behind
        what it has set down.
        """
        lowest = self._fixed.lowest(self._underside, self._place(np.zeros(2))) + _LEVEL
        away = self._middle - self._scene.base.position[:2]
        distance = np.round(np.linalg.norm(spots, axis=1), 6)
        order = np.lexsort(np.stack([-spots @ away, distance]))
        return [
            spot for spot in spots[order] if self._fixed.lowest(self._underside, self._place(spot)) <= lowest
        ]

    def _is_free(self, spot: XY, gap: float) -> bool:
        """Whether nothing that moves is in the way, within a gap (m)."""
        return all(
            self._everything.lowest(self._underside, self._place(spot) + step)
            <= self._fixed.lowest(self._underside, self._place(spot) + step) + _LEVEL
            for step in gap * np.concatenate([np.zeros((1, 2)), _AROUND])
        )

    def _leaves_room(self, spot: XY, gap: float) -> bool:
        """Whether what is still to come to this target has room on the other side of the middle."""
        mine = self._footprint(self._thing) + spot
        return all(
            _apart(mine, self._footprint(other) - spot) > gap
            for other in _still_to_come(self._scene, self._thing, self._target)
        )

    def _footprint(self, thing: str) -> Float64[np.ndarray, "n 2"]:
        """A thing's points in the plan, about its own position."""
        return self._scene.surface(thing)[:, :2] - self._scene.position(thing)[:2]


def _still_to_come(scene: ExpertScene, thing: str, target: str) -> Sequence[str]:
    """What else is to be brought to a target and is not yet there."""
    return [
        goal.arguments[0]
        for goal in scene.goals
        if goal.arguments[1:] == (target,) and goal.arguments[0] != thing and not scene.satisfied(goal)
    ]


def _grid(half: Float64[np.ndarray, " 2"]) -> Float64[np.ndarray, "n 2"]:
    """Evenly spaced spots of a rectangle about the origin, which is one of them."""
    axes = [np.arange(-int(h / _SPACING), int(h / _SPACING) + 1) * _SPACING for h in half]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


def _apart(one: Float64[np.ndarray, "n 2"], other: Float64[np.ndarray, "m 2"]) -> float:
    """The distance (m) between two clouds in the plan."""
    return float(KDTree(one).query(other)[0].min())
