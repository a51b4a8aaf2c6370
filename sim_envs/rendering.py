"""Rendering of MuJoCo models: capturing a scene takes microseconds; drawing it is expensive and can wait."""

import atexit
import functools
import weakref
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
from jaxtyping import UInt8

from sim_envs.gl import context_class

_ROUNDING = 0.01  # margin around the image, as a fraction of half of it: OpenGL computes in single precision
_MIRRORS = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_BOX)  # whose reflectance MuJoCo draws

mujoco.set_mju_user_warning(lambda _: None)  # the default writes MUJOCO_LOG.TXT to the working directory

_MAX_GEOMS = 1000
_GEOM = int(mujoco.mjtObj.mjOBJ_GEOM)


class _Renderer:
    """An OpenGL context with one model's meshes and textures.

    Freed by `close`, or when it is garbage-collected, at the latest before the interpreter unloads OpenGL.
    Like every OpenGL context, it belongs to the thread that made it.
    """

    def __init__(self, model: mujoco.MjModel, *, height: int, width: int) -> None:
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


_open_renderers: weakref.WeakSet[_Renderer] = weakref.WeakSet()


@functools.cache
def _free_at_exit() -> None:
    """Free open renderers at exit, before EGL is unloaded: exit handlers run last in, first out."""
    atexit.register(lambda: [renderer.close() for renderer in list(_open_renderers)])


def _free(gl: Any, context: mujoco.MjrContext) -> None:
    gl.make_current()
    context.free()
    gl.free()


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
        """Map names of images to the model's cameras; images have a height and width in pixels."""
        self._model, self._size, self._option = model, size, option
        self._views: dict[str, tuple[mujoco.MjvCamera, mujoco.MjvScene]] = {}
        for name, each in cameras.items():
            camera = mujoco.MjvCamera()
            camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            camera.fixedcamid = model.camera(each).id
            self._views[name] = camera, mujoco.MjvScene(model, maxgeom=_MAX_GEOMS)
        self._perturbation = mujoco.MjvPerturb()
        self._perturbation.skinselect = -1
        self._sizes = model.geom_rbound.tolist()
        self._casts_shadows = bool(model.light_castshadow.any())
        self._renderer: _Renderer | None = None

    def capture(self, data: mujoco.MjData) -> None:
        """Capture the current scenes, replacing the previous ones."""
        every = mujoco.mjtCatBit.mjCAT_ALL
        for camera, scene in self._views.values():
            mujoco.mjv_updateScene(self._model, data, self._option, self._perturbation, camera, every, scene)

    def draw(self, camera: str, *, cull: bool = False) -> UInt8[np.ndarray, "height width 3"]:
        """Draw a camera's captured scene, `cull`ed first if the image is square. Rows run upwards.

        A UsageError if no rendering backend works on this machine.
        """
        if self._renderer is None:
            self._renderer = _Renderer(self._model, height=self._size[0], width=self._size[1])
        _, scene = self._views[camera]
        if cull:
            self._cull(scene)
        return self._renderer.draw(scene)

    def close(self) -> None:
        """Free the OpenGL context and its memory, if it was opened."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _cull(self, scene: mujoco.MjvScene) -> None:
        """Remove geoms whose bounding boxes are outside a square image. No pixel changes.

        Nothing is removed if lights cast shadows or a geom may be a mirror: both show what is elsewhere.
        """
        geoms = scene.geoms[: scene.ngeom]
        if self._casts_shadows or any(geom.type in _MIRRORS and geom.reflectance > 0 for geom in geoms):
            return
        geoms = [geom for geom in geoms if geom.objtype == _GEOM and self._sizes[geom.objid] > 0]
        center, half = np.split(self._model.geom_aabb[[geom.objid for geom in geoms]], 2, axis=1)
        axes = np.array([geom.mat.T for geom in geoms], np.float64).reshape(-1, 3, 3)
        centers = np.array([geom.pos for geom in geoms], np.float64) + (center[:, None] @ axes)[:, 0]
        edges = half[:, :, None] * axes
        eye, ahead, up = (
            np.mean([getattr(each, part) for each in scene.camera], axis=0, dtype=np.float64)
            for part in ("pos", "forward", "up")
        )
        lens = scene.camera[0]
        slope = (lens.frustum_top - lens.frustum_bottom) / 2 / lens.frustum_near
        across, upwards, edge = np.cross(ahead, up) / slope, up / slope, (1 + _ROUNDING) * ahead
        outwards = (-ahead, across - edge, -across - edge, upwards - edge, -upwards - edge)
        seen = np.all(
            [(centers - eye) @ side <= np.abs(edges @ side).sum(axis=1) for side in outwards], axis=0
        )
        for geom, kept in zip(geoms, seen, strict=True):
            if not kept:
                geom.type = mujoco.mjtGeom.mjGEOM_NONE
