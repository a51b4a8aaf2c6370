"""Surfaces as point clouds and height maps, and those of a MuJoCo model's collision shapes."""

import dataclasses
import functools
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float64, Int64

from sim_envs.scripted.poses import Box, Pose

Points = Float64[np.ndarray, "_ 3"]
Bodies = Bool[np.ndarray, " body"]  # a mask of the bodies of a model

_NOTHING = -1e6  # height (m) of cells without points


def box_surface(half: Float64[np.ndarray, " 3"], spacing: float) -> Points:
    """Points on the six faces of a box about the origin, at most `spacing` metres apart along each edge."""
    axes = [_evenly(-h, h, spacing) for h in half]
    faces = []
    for axis in range(3):
        for side in (-half[axis], half[axis]):
            grid = list(axes)
            grid[axis] = np.array([side])
            faces.append(np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, 3))
    return np.unique(np.concatenate(faces), axis=0)


def rectangle(
    *, center: tuple[float, float], half: tuple[float, float], height: float, spacing: float
) -> Points:
    """Points of a horizontal rectangle, at most `spacing` metres apart along each edge."""
    axes = [_evenly(c - h, c + h, spacing) for c, h in zip(center, half, strict=True)]
    x, y = np.meshgrid(*axes, indexing="ij")
    return np.stack([x.ravel(), y.ravel(), np.full(x.size, height)], axis=-1)


def _evenly(low: float, high: float, spacing: float) -> Float64[np.ndarray, " _"]:
    return np.linspace(low, high, max(int(np.ceil((high - low) / spacing)), 1) + 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeightMap:
    """The greatest height over every cell of a square grid; very low for cells without points."""

    origin: Float64[np.ndarray, " 2"]  # lower corner of the grid (m)
    cell: float  # side of a cell (m)
    top: Float64[np.ndarray, "nx ny"]  # heights (m)

    @classmethod
    def over(
        cls, points: Points, *, center: Float64[np.ndarray, " 2"], reach: float, cell: float
    ) -> "HeightMap":
        """The map of the points within `reach` metres of `center` along either axis."""
        cells = int(np.ceil(2 * reach / cell))
        origin = center - cells * cell / 2
        top = np.full((cells, cells), _NOTHING)
        index = np.floor((points[:, :2] - origin) / cell).astype(np.int64)
        inside = np.all((index >= 0) & (index < cells), axis=1)
        np.maximum.at(top, (index[inside, 0], index[inside, 1]), points[inside, 2])
        return cls(origin=origin, cell=cell, top=top)

    def cells_of(self, points: Float64[np.ndarray, "n 2"]) -> Int64[np.ndarray, "n 2"]:
        """The cell of each point; the nearest one for points outside the grid."""
        index = np.floor((points - self.origin) / self.cell).astype(np.int64)
        return np.clip(index, 0, np.array(self.top.shape) - 1)

    def center_of(self, cells: Int64[np.ndarray, "*n 2"]) -> Float64[np.ndarray, "*n 2"]:
        """Center of each cell (m)."""
        return self.origin + (cells + 0.5) * self.cell

    def under_rectangle(self, half: tuple[float, float], offset: float = 0.0) -> Float64[np.ndarray, "nx ny"]:
        """The greatest height under a rectangle of some half extents (m), for every cell as its center.

        Its center may be at an offset (m) from the cell along the first axis.
        """
        from scipy import ndimage

        size = [2 * round(h / self.cell) + 1 for h in half]
        highest = ndimage.maximum_filter(self.top, size=size, mode="constant", cval=_NOTHING)
        shift = (-round(offset / self.cell), 0)
        return ndimage.shift(highest, shift, order=0, mode="constant", cval=_NOTHING)

    def widened(self) -> "HeightMap":
        """The map dilated by one cell."""
        from scipy import ndimage

        return dataclasses.replace(self, top=ndimage.maximum_filter(self.top, size=3))


_FINE_SPACING = 0.004
_COARSE_SPACING = 0.008
_PLANE_REACH = 1.0  # half the side (m) of the square that replaces a plane; larger than the arm's reach
_FINE_EXTENT = 0.3  # boxes longer than this (m) are sampled coarsely; fingers are wider than that spacing


class Collisions:
    """The collision shapes of a model at their current poses; with bounding boxes for what is not a box."""

    def __init__(self, data: Any, *, robot: int) -> None:
        """Read MuJoCo's data; `robot` is the id of the robot's root body."""
        self._model, self._data, self._robot = data.model, data, robot

    def surface(self, bodies: Bodies) -> Points:
        """Points on the surfaces of some bodies, in world coordinates."""
        clouds = [
            points @ self._data.xmat[body].reshape(3, 3).T + self._data.xpos[body]
            for body, points in self._samples
            if bodies[body]
        ]
        return np.concatenate(clouds) if clouds else np.zeros((0, 3))

    def boxes(self, bodies: Bodies) -> list[Box]:
        """Bounding boxes of the collision shapes of some bodies."""
        found = []
        for geom in self._geoms:
            if bodies[self._model.geom_bodyid[geom]]:
                rotation = self._data.geom_xmat[geom].reshape(3, 3).copy()
                bounds = self._model.geom_aabb[geom]
                center = self._data.geom_xpos[geom] + rotation @ bounds[:3]
                found.append(Box(pose=Pose(position=center, rotation=rotation), half=bounds[3:].copy()))
        return found

    @functools.cached_property
    def _samples(self) -> list[tuple[int, Points]]:
        """(body, points in the body's frame) of every geom."""
        model, found = self._model, []
        for geom in self._geoms:
            if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE:
                half = (_PLANE_REACH, _PLANE_REACH)
                points = rectangle(center=(0.0, 0.0), half=half, height=0.0, spacing=_COARSE_SPACING)
            else:
                center, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
                spacing = _FINE_SPACING if 2 * half.max() < _FINE_EXTENT else _COARSE_SPACING
                points = box_surface(half, spacing) + center
            rotation = np.zeros(9)
            mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
            in_body = points @ rotation.reshape(3, 3).T + model.geom_pos[geom]
            found.append((int(model.geom_bodyid[geom]), in_body))
        return found

    @functools.cached_property
    def _geoms(self) -> Int64[np.ndarray, " _"]:
        """The geoms that can collide."""
        geoms = np.flatnonzero(self._model.geom_contype | self._model.geom_conaffinity)
        bodies = self._model.geom_bodyid[geoms]
        return geoms[self._model.body_rootid[bodies] != self._robot]
