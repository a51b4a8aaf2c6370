"""The collision shapes of a MuJoCo model without its robot, as surface points and as boxes."""

import functools
from collections.abc import Set
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Int64

from sim_envs.scripted.poses import Box, Pose
from sim_envs.scripted.surfaces import Points, box_surface, rectangle

_FINE_SPACING = 0.004
_COARSE_SPACING = 0.008
_PLANE_REACH = 1.0
"""Half the side (m) of the square that replaces an infinite plane; larger than the arm's reach."""

_FINE_EXTENT = 0.3
"""Boxes longer than this (m) are sampled coarsely; fingers are wider than the coarse spacing."""


class Collisions:
    """The collision shapes of a model at their current poses.

    LIBERO's objects collide as boxes; other shapes are replaced by their bounding boxes.
    """

    def __init__(self, model: Any, data: Any, *, robot: int) -> None:
        """Read MuJoCo's model and data; `robot` is the id of the robot's root body."""
        self._model = model
        self._data = data
        self._robot = robot

    def surface(self, bodies: Set[int]) -> Points:
        """Points on the surfaces of some bodies, in world coordinates."""
        clouds = [
            points @ self._data.xmat[body].reshape(3, 3).T + self._data.xpos[body]
            for body, points in self._samples
            if body in bodies
        ]
        return np.concatenate(clouds) if clouds else np.zeros((0, 3))

    def boxes(self, bodies: Set[int]) -> list[Box]:
        """Bounding boxes of the collision shapes of some bodies."""
        return [self._box(int(geom)) for geom in self._geoms if self._model.geom_bodyid[geom] in bodies]

    def _box(self, geom: int) -> Box:
        rotation = self._data.geom_xmat[geom].reshape(3, 3).copy()
        bounds = self._model.geom_aabb[geom]
        center = self._data.geom_xpos[geom] + rotation @ bounds[:3]
        return Box(pose=Pose(position=center, rotation=rotation), half=bounds[3:].copy())

    @functools.cached_property
    def _samples(self) -> list[tuple[int, Points]]:
        """(body, points in the body's frame) of every geom."""
        model = self._model
        return [(int(model.geom_bodyid[geom]), _geom_surface(model, int(geom))) for geom in self._geoms]

    @functools.cached_property
    def _geoms(self) -> Int64[np.ndarray, " _"]:
        """The geoms that can collide."""
        geoms = np.flatnonzero(self._model.geom_contype | self._model.geom_conaffinity)
        bodies = self._model.geom_bodyid[geoms]
        return geoms[self._model.body_rootid[bodies] != self._robot]


def _geom_surface(model: Any, geom: int) -> Points:
    """Points on the surface of a geom, in its body's frame."""
    if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE:
        half = (_PLANE_REACH, _PLANE_REACH)
        points = rectangle(center=(0.0, 0.0), half=half, height=0.0, spacing=_COARSE_SPACING)
    else:
        center, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
        spacing = _FINE_SPACING if 2 * half.max() < _FINE_EXTENT else _COARSE_SPACING
        points = box_surface(half, spacing) + center
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
    return points @ rotation.reshape(3, 3).T + model.geom_pos[geom]
