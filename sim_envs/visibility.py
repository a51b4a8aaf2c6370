"""Which geoms of a scene a square picture can show, directly or in MuJoCo's mirror; the rest need not be
drawn."""

import dataclasses

import mujoco
import numpy as np
from jaxtyping import Bool, Float64

Vector3 = Float64[np.ndarray, " 3"]
Points = Float64[np.ndarray, "point 3"]

_ROUNDING = 0.01
"""Share of half a picture by which a window is widened: OpenGL computes in single precision."""
_OPAQUE = 0.995
"""MuJoCo draws as opaque what has at least this alpha."""
_PLANE, _BOX = int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_BOX)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boxes:
    """What bounds geoms.

    Attributes:
        centers: Of the boxes, m.
        edges: Half of each box's three edges, as vectors, m.
    """

    centers: Points
    edges: Float64[np.ndarray, "box 3 3"]

    @classmethod
    def around(cls, geoms: list[mujoco.MjvGeom], model: mujoco.MjModel) -> "Boxes":
        """The bounding boxes of a scene's geoms, where the scene has them."""
        center, half = np.split(model.geom_aabb[[geom.objid for geom in geoms]], 2, axis=1)
        axes = np.array([geom.mat.T for geom in geoms], np.float64).reshape(-1, 3, 3)
        positions = np.array([geom.pos for geom in geoms], np.float64).reshape(-1, 3)
        return cls(centers=positions + (center[:, None] @ axes)[:, 0], edges=half[:, :, None] * axes)

    def reach(self, direction: Vector3) -> Float64[np.ndarray, " box"]:
        """How far each goes in a direction from its centre, times the direction's length."""
        reach: Float64[np.ndarray, " box"] = np.abs(self.edges @ direction).sum(axis=1)
        return reach


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mirror:
    """The one plane or box that MuJoCo draws as a mirror; of a box, the upper face.

    Attributes:
        corners: Of its face; none of a plane, which has no end.
        center: A point of its face.
        normal: Which way its face looks.
    """

    corners: Points
    center: Vector3
    normal: Vector3

    @classmethod
    def face(cls, geom: mujoco.MjvGeom) -> "Mirror":
        """The face of a plane or box that is a mirror."""
        along, across, normal = geom.mat.T.astype(np.float64)
        if geom.type == _PLANE:
            return cls(corners=np.empty((0, 3)), center=geom.pos.astype(np.float64), normal=normal)
        center = geom.pos + geom.size[2] * normal
        signs = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)])
        corners = center + signs * geom.size[:2] @ np.stack([along, across])
        return cls(corners=corners, center=center, normal=normal)

    def faces(self, boxes: Boxes) -> Bool[np.ndarray, " box"]:
        """Whether some of each box is on the side that it mirrors."""
        return (boxes.centers - self.center) @ self.normal > -boxes.reach(self.normal)

    def image(self, boxes: Boxes) -> Boxes:
        """Where boxes appear in it."""
        turn = np.eye(3) - 2 * np.outer(self.normal, self.normal)
        return Boxes(centers=self.center + (boxes.centers - self.center) @ turn, edges=boxes.edges @ turn)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """A rectangle of the picture; the picture goes from -1 to 1 in both directions."""

    left: float = -1.0
    bottom: float = -1.0
    right: float = 1.0
    top: float = 1.0


class Frustum:
    """What the camera of a scene, given by its field of view, sees in a square picture."""

    def __init__(self, scene: mujoco.MjvScene) -> None:
        """The camera that the scene was updated for."""
        self._eye, self._ahead, up = (_of_both_eyes(scene, part) for part in ("pos", "forward", "up"))
        lens = scene.camera[0]
        self._near = lens.frustum_near
        slope = (lens.frustum_top - lens.frustum_bottom) / 2 / lens.frustum_near
        self._right: Vector3 = np.cross(self._ahead, up) / slope
        self._up: Vector3 = up / slope

    def shows(self, boxes: Boxes, window: Window) -> Bool[np.ndarray, " box"]:
        """Whether boxes may show in a window: not those beyond one of its sides or behind the camera."""
        outwards = (
            -self._ahead,
            self._right - (window.right + _ROUNDING) * self._ahead,
            -self._right + (window.left - _ROUNDING) * self._ahead,
            self._up - (window.top + _ROUNDING) * self._ahead,
            -self._up + (window.bottom - _ROUNDING) * self._ahead,
        )
        offsets = boxes.centers - self._eye
        return np.all([offsets @ side <= boxes.reach(side) for side in outwards], axis=0)

    def window(self, mirror: Mirror) -> Window | None:
        """Where a mirror is in the picture: anywhere if it has no end or comes too near; None for nowhere."""
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
        """The first opaque plane or box with reflectance, the only one that is, unless seen from behind."""
        for geom in filter(is_reflective, scene.geoms[: scene.ngeom]):
            mirror = Mirror.face(geom)
            behind = (self._eye - mirror.center) @ mirror.normal < 0
            # From behind, a plane is transparent, so that the next geom is the mirror.
            if not (behind and geom.type == _PLANE):
                return None if behind else mirror
        return None


def _of_both_eyes(scene: mujoco.MjvScene, part: str) -> Vector3:
    left, right = (getattr(camera, part).astype(np.float64) for camera in scene.camera)
    middle: Vector3 = (left + right) / 2
    return middle


def is_reflective(geom: mujoco.MjvGeom) -> bool:
    """Whether a geom may be the mirror. MuJoCo ignores the reflectance of other shapes."""
    return bool(geom.type in (_PLANE, _BOX) and geom.reflectance > 0 and geom.rgba[3] >= _OPAQUE)
