"""Rendering of MuJoCo models: capturing a scene takes microseconds; drawing it is expensive and can wait.

Culling finds the geoms that can appear in a square image, directly or in MuJoCo's mirror."""

import atexit
import dataclasses
import functools
import weakref
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float64, UInt8

from sim_envs.gl import context_class

Vector3 = Float64[np.ndarray, " 3"]
Points = Float64[np.ndarray, "point 3"]

Window = tuple[float, float, float, float]
"""Left, bottom, right and top of a rectangle of the image, in coordinates from -1 to 1."""

_WHOLE: Window = (-1.0, -1.0, 1.0, 1.0)

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


class Frustum:
    """The view frustum of a scene's camera in a square image."""

    def __init__(self, scene: mujoco.MjvScene) -> None:
        """Use the camera that the scene was updated for."""
        eyes = scene.camera
        self._eye, self._ahead, up = (
            (getattr(eyes[0], part).astype(np.float64) + getattr(eyes[1], part).astype(np.float64)) / 2
            for part in ("pos", "forward", "up")
        )
        lens = scene.camera[0]
        self._near = lens.frustum_near
        slope = (lens.frustum_top - lens.frustum_bottom) / 2 / lens.frustum_near
        self._right: Vector3 = np.cross(self._ahead, up) / slope
        self._up: Vector3 = up / slope

    def shows(self, boxes: BoundingBoxes, window: Window) -> Bool[np.ndarray, " box"]:
        """Whether boxes may appear in a window: not outside one of its sides, nor behind the camera."""
        left, bottom, right, top = window
        outwards = (
            -self._ahead,
            self._right - (right + _ROUNDING) * self._ahead,
            -self._right + (left - _ROUNDING) * self._ahead,
            self._up - (top + _ROUNDING) * self._ahead,
            -self._up + (bottom - _ROUNDING) * self._ahead,
        )
        offsets = boxes.centers - self._eye
        return np.all([offsets @ side <= boxes.extent(side) for side in outwards], axis=0)

    def window(self, mirror: Mirror) -> Window | None:
        """The mirror's window in the image: all of it if infinite or too near; None if outside the image."""
        offsets = mirror.corners - self._eye
        depth = offsets @ self._ahead
        if not len(offsets) or depth.min() <= self._near:
            return _WHOLE
        across, up = offsets @ self._right / depth, offsets @ self._up / depth
        left, bottom = max(-1.0, across.min()), max(-1.0, up.min())
        right, top = min(1.0, across.max()), min(1.0, up.max())
        beyond = left > right + _ROUNDING or bottom > top + _ROUNDING
        return None if beyond else (left, bottom, right, top)

    def mirror(self, scene: mujoco.MjvScene) -> Mirror | None:
        """The scene's mirror: the first opaque plane or box with reflectance, unless seen from behind."""
        for geom in filter(is_reflective, scene.geoms[: scene.ngeom]):
            mirror = Mirror.face(geom)
            behind = (self._eye - mirror.center) @ mirror.normal < 0
            # From behind, a plane is transparent: then the next geom is the mirror.
            if not (behind and geom.type == _PLANE):
                return None if behind else mirror
        return None


def is_reflective(geom: mujoco.MjvGeom) -> bool:
    """Whether a geom can be the mirror. MuJoCo ignores the reflectance of other shapes."""
    return bool(geom.type in (_PLANE, _BOX) and geom.reflectance > 0 and geom.rgba[3] >= _OPAQUE)


mujoco.set_mju_user_warning(lambda _: None)  # the default writes MUJOCO_LOG.TXT to the working directory

_MAX_GEOMS = 1000
_GEOM = int(mujoco.mjtObj.mjOBJ_GEOM)


class Renderer:
    """An OpenGL context with one model's meshes and textures.

    Freed by `close`, or when it is garbage-collected, at the latest before the interpreter unloads OpenGL.
    Like every OpenGL context, it belongs to the thread that made it.
    """

    def __init__(self, model: mujoco.MjModel, *, height: int, width: int) -> None:
        """Open a context for images of this size in pixels.

        Raises:
            UsageError: No rendering backend works on this machine.
        """
        self._gl = context_class()(width, height)
        self._gl.make_current()
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self.close = weakref.finalize(self, _free, self._gl, self._context)
        self.close.atexit = False  # pyrefly: ignore[missing-attribute] - missing in its stub
        _open_renderers.add(self)
        _free_at_exit()

    def draw(self, scene: mujoco.MjvScene) -> UInt8[np.ndarray, "height width 3"]:
        """Draw a scene. Rows run upwards, as in OpenGL."""
        self._gl.make_current()
        pixels = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        mujoco.mjr_render(self._viewport, scene, self._context)
        mujoco.mjr_readPixels(pixels, None, self._viewport, self._context)
        return pixels


_open_renderers: weakref.WeakSet[Renderer] = weakref.WeakSet()


@functools.cache
def _free_at_exit() -> None:
    """Free open renderers at exit, before EGL is unloaded: exit handlers run last in, first out."""
    atexit.register(lambda: [renderer.close() for renderer in list(_open_renderers)])


def _free(gl: Any, context: mujoco.MjrContext) -> None:
    gl.make_current()
    context.free()
    gl.free()


class View:
    """A camera and the scene it captured last.

    Attributes:
        scene: The captured scene.
    """

    def __init__(self, model: mujoco.MjModel, camera: str) -> None:
        """Use the model's camera of that name."""
        self.scene = mujoco.MjvScene(model, maxgeom=_MAX_GEOMS)
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = model.camera(camera).id
        self._perturbation = mujoco.MjvPerturb()
        self._perturbation.skinselect = -1
        self._model = model
        self._sizes = model.geom_rbound.tolist()
        self._casts_shadows = bool(model.light_castshadow.any())

    def capture(self, model: mujoco.MjModel, data: mujoco.MjData, option: mujoco.MjvOption) -> None:
        """Capture the current scene."""
        mujoco.mjv_updateScene(
            model, data, option, self._perturbation, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self.scene
        )

    def cull(self) -> None:
        """Remove geoms that a square image and its mirror do not show. No pixel changes.

        A mirror outside the image is no longer drawn as one, which halves the work. Nothing is removed if
        lights cast shadows.
        """
        if self._casts_shadows:
            return
        # Candidates for the mirror stay: the choice depends on all of them.
        geoms = [
            geom
            for geom in self.scene.geoms[: self.scene.ngeom]
            if geom.objtype == _GEOM and self._sizes[geom.objid] > 0 and not is_reflective(geom)
        ]
        boxes = BoundingBoxes.around(geoms, self._model)
        frustum = Frustum(self.scene)
        seen = frustum.shows(boxes, _WHOLE)
        mirror = frustum.mirror(self.scene)
        window = None if mirror is None else frustum.window(mirror)
        if mirror is not None and window is not None:
            seen |= mirror.is_before(boxes) & frustum.shows(mirror.reflect(boxes), window)
        self.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = window is not None
        for geom, kept in zip(geoms, seen, strict=True):
            if not kept:
                geom.type = mujoco.mjtGeom.mjGEOM_NONE


class Cameras:
    """Cameras of one model. They share an OpenGL context, which the first image opens.

    Capturing at every control step and drawing only the images that are used saves most of the rendering.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        cameras: Mapping[str, str],
        *,
        size: tuple[int, int],
        option: mujoco.MjvOption,
    ) -> None:
        """Set up cameras.

        Args:
            model: The compiled model.
            cameras: Maps names of images to the model's cameras.
            size: Height and width of images, pixels.
            option: The groups of geoms and sites to draw.
        """
        self._model, self._size, self._option = model, size, option
        self._views = {name: View(model, camera) for name, camera in cameras.items()}
        self._renderer: Renderer | None = None

    def capture(self, data: mujoco.MjData) -> None:
        """Capture the current scenes, replacing the previous ones."""
        for view in self._views.values():
            view.capture(self._model, data, self._option)

    def draw(self, camera: str, *, cull: bool = False) -> UInt8[np.ndarray, "height width 3"]:
        """Draw a camera's captured scene, culled first if the image is square. Rows run upwards.

        Raises:
            UsageError: No rendering backend works on this machine.
        """
        if self._renderer is None:
            self._renderer = Renderer(self._model, height=self._size[0], width=self._size[1])
        if cull:
            self._views[camera].cull()
        return self._renderer.draw(self._views[camera].scene)

    def close(self) -> None:
        """Free the OpenGL context and its memory, if it was opened."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
