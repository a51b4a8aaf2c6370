"""Culling: which geoms of a scene can appear in a square image, directly or in MuJoCo's mirror."""

import dataclasses

import mujoco
import numpy as np
from jaxtyping import Bool, Float64

Vector3 = Float64[np.ndarray, " 3"]
Points = Float64[np.ndarray, "point 3"]

_ROUNDING = 0.01
"""Margin around a window, as a fraction of half the image: OpenGL computes in single precision."""
_OPAQUE = 0.995
"""MuJoCo draws geoms of at least this alpha as opaque."""
_PLANE, _BOX = int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_BOX)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundingBoxes:
    """Oriented bounding boxes of geoms.

    Attributes:
        centers: Centers of the boxes, m.
        edges: Half of each box's three edges, as vectors, m.
    """

    centers: Points
    edges: Float64[np.ndarray, "box 3 3"]

    @classmethod
    def around(cls, geoms: list[mujoco.MjvGeom], model: mujoco.MjModel) -> "BoundingBoxes":
        """The bounding boxes of geoms at their poses in the scene."""
        center, half = np.split(model.geom_aabb[[geom.objid for geom in geoms]], 2, axis=1)
        axes = np.array([geom.mat.T for geom in geoms], np.float64).reshape(-1, 3, 3)
        positions = np.array([geom.pos for geom in geoms], np.float64).reshape(-1, 3)
        return cls(centers=positions + (center[:, None] @ axes)[:, 0], edges=half[:, :, None] * axes)

    def extent(self, direction: Vector3) -> Float64[np.ndarray, " box"]:
        """Half the extent of each box along a direction, times the direction's length."""
        extent: Float64[np.ndarray, " box"] = np.abs(self.edges @ direction).sum(axis=1)
        return extent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mirror:
    """The one plane, or upper face of a box, that MuJoCo draws as a mirror.

    Attributes:
        corners: Corners of the face; none for a plane, which is infinite.
        center: A point of the face.
        normal: Normal of the face.
    """

    corners: Points
    center: Vector3
    normal: Vector3

    @classmethod
    def face(cls, geom: mujoco.MjvGeom) -> "Mirror":
        """The mirroring face of a plane or box."""
        along, across, normal = geom.mat.T.astype(np.float64)
        if geom.type == _PLANE:
            return cls(corners=np.empty((0, 3)), center=geom.pos.astype(np.float64), normal=normal)
        center = geom.pos + geom.size[2] * normal
        signs = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)])
        corners = center + signs * geom.size[:2] @ np.stack([along, across])
        return cls(corners=corners, center=center, normal=normal)

    def is_before(self, boxes: BoundingBoxes) -> Bool[np.ndarray, " box"]:
        """Whether each box is at least partly in front of the mirror."""
        return (boxes.centers - self.center) @ self.normal > -boxes.extent(self.normal)

    def reflect(self, boxes: BoundingBoxes) -> BoundingBoxes:
        """The mirror images of boxes."""
        turn = np.eye(3) - 2 * np.outer(self.normal, self.normal)
        return BoundingBoxes(
            centers=self.center + (boxes.centers - self.center) @ turn, edges=boxes.edges @ turn
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """A rectangle of the image, in coordinates from -1 to 1."""

    left: float = -1.0
    bottom: float = -1.0
    right: float = 1.0
    top: float = 1.0


class Frustum:
    """The view frustum of a scene's camera in a square image."""

    def __init__(self, scene: mujoco.MjvScene) -> None:
        """Use the camera that the scene was updated for."""
        self._eye, self._ahead, up = (_of_both_eyes(scene, part) for part in ("pos", "forward", "up"))
        lens = scene.camera[0]
        self._near = lens.frustum_near
        slope = (lens.frustum_top - lens.frustum_bottom) / 2 / lens.frustum_near
        self._right: Vector3 = np.cross(self._ahead, up) / slope
        self._up: Vector3 = up / slope

    def shows(self, boxes: BoundingBoxes, window: Window) -> Bool[np.ndarray, " box"]:
        """Whether boxes may appear in a window: not outside one of its sides, nor behind the camera."""
        outwards = (
            -self._ahead,
            self._right - (window.right + _ROUNDING) * self._ahead,
            -self._right + (window.left - _ROUNDING) * self._ahead,
            self._up - (window.top + _ROUNDING) * self._ahead,
            -self._up + (window.bottom - _ROUNDING) * self._ahead,
        )
        offsets = boxes.centers - self._eye
        return np.all([offsets @ side <= boxes.extent(side) for side in outwards], axis=0)

    def window(self, mirror: Mirror) -> Window | None:
        """The mirror's window in the image: all of it if infinite or too near; None if outside the image."""
        offsets = mirror.corners - self._eye
        depth = offsets @ self._ahead
        if not len(offsets) or depth.min() <= self._near:
            return Window()
        across, up = offsets @ self._right / depth, offsets @ self._up / depth
        window = Window(
            left=max(-1.0, across.min()),
            bottom=max(-1.0, up.min()),
            right=min(1.0, across.max()),
            top=min(1.0, up.max()),
        )
        beyond = window.left > window.right + _ROUNDING or window.bottom > window.top + _ROUNDING
        return None if beyond else window

    def mirror(self, scene: mujoco.MjvScene) -> Mirror | None:
        """The scene's mirror: the first opaque plane or box with reflectance, unless seen from behind."""
        for geom in filter(is_reflective, scene.geoms[: scene.ngeom]):
            mirror = Mirror.face(geom)
            behind = (self._eye - mirror.center) @ mirror.normal < 0
            # From behind, a plane is transparent: then the next geom is the mirror.
            if not (behind and geom.type == _PLANE):
                return None if behind else mirror
        return None


def _of_both_eyes(scene: mujoco.MjvScene, part: str) -> Vector3:
    left, right = (getattr(camera, part).astype(np.float64) for camera in scene.camera)
    middle: Vector3 = (left + right) / 2
    return middle


def is_reflective(geom: mujoco.MjvGeom) -> bool:
    """Whether a geom can be the mirror. MuJoCo ignores the reflectance of other shapes."""
    return bool(geom.type in (_PLANE, _BOX) and geom.reflectance > 0 and geom.rgba[3] >= _OPAQUE)
