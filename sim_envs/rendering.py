"""What rendering a MuJoCo model takes: an exposure takes microseconds and can wait; developing costs."""

import atexit
import functools
import math
import weakref
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, UInt8

from sim_envs.gl import context_class

_MAX_GEOMS = 1000


class Renderer:
    """An OpenGL context with one model's meshes and textures in it.

    Freed by `close`, else when nothing refers to it any more, at the latest before the interpreter takes
    OpenGL down. An instance belongs to the thread that made it, as OpenGL contexts do.
    """

    def __init__(self, model: mujoco.MjModel, *, height: int, width: int) -> None:
        """Open a context for images of so many pixels.

        Raises:
            UsageError: Nothing can render on this machine.
        """
        self._gl = context_class()(width, height)
        self._gl.make_current()
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self.close = weakref.finalize(self, _free, self._gl, self._context)
        self.close.atexit = False  # pyrefly: ignore[missing-attribute] - a property that its stub lacks
        _open_renderers.add(self)
        _free_at_exit()

    def draw(self, scene: mujoco.MjvScene) -> UInt8[np.ndarray, "height width 3"]:
        """The pixels of a scene. OpenGL's rows run upwards."""
        self._gl.make_current()
        pixels = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        mujoco.mjr_render(self._viewport, scene, self._context)
        mujoco.mjr_readPixels(pixels, None, self._viewport, self._context)
        return pixels


_open_renderers: weakref.WeakSet[Renderer] = weakref.WeakSet()


@functools.cache
def _free_at_exit() -> None:
    """Have what is left open freed at exit, before EGL goes: exit handlers run last come, first served."""
    atexit.register(lambda: [renderer.close() for renderer in list(_open_renderers)])


def _free(gl: Any, context: mujoco.MjrContext) -> None:
    gl.make_current()
    context.free()
    gl.free()


class View:
    """One camera and the scene it saw last.

    Attributes:
        scene: What it saw.
    """

    def __init__(self, model: mujoco.MjModel, camera: str) -> None:
        """Look through the camera of that name."""
        self.scene = mujoco.MjvScene(model, maxgeom=_MAX_GEOMS)
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = model.camera(camera).id
        self._perturbation = mujoco.MjvPerturb()
        self._perturbation.skinselect = -1
        self._radii = model.geom_rbound.copy()
        self._casts_shadows = bool(model.light_castshadow.any())

    def expose(self, model: mujoco.MjModel, data: mujoco.MjData, option: mujoco.MjvOption) -> None:
        """Record what the camera sees now."""
        mujoco.mjv_updateScene(
            model, data, option, self._perturbation, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self.scene
        )

    def hide_unseen(self) -> None:
        """Leave out of the scene what lies wholly outside a square picture. It changes no pixel.

        Nothing is left out where it might show all the same, in a shadow or in a mirror in the picture.
        """
        if self._casts_shadows:
            return
        geoms = [
            geom
            for geom in self.scene.geoms[: self.scene.ngeom]
            if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM and self._radii[geom.objid] > 0
        ]
        unseen = self._outside(geoms)
        if any(geom.reflectance > 0 and not hidden for geom, hidden in zip(geoms, unseen, strict=True)):
            return
        for geom, hidden in zip(geoms, unseen, strict=True):
            if hidden:
                geom.type = mujoco.mjtGeom.mjGEOM_NONE

    def _outside(self, geoms: Sequence[mujoco.MjvGeom]) -> Bool[np.ndarray, " geom"]:
        """Whether the bounding sphere of each geom is beyond a side of the view, or behind the camera."""
        eye, ahead, up = (
            np.mean([getattr(camera, part) for camera in self.scene.camera], axis=0)  # of both eyes
            for part in ("pos", "forward", "up")
        )
        camera = self.scene.camera[0]
        offsets = np.array([geom.pos for geom in geoms]).reshape(-1, 3) - eye
        radii = self._radii[[geom.objid for geom in geoms]]
        depth = offsets @ ahead
        upwards, sideways = np.abs(offsets @ up), np.abs(offsets @ np.cross(ahead, up))
        slope = (camera.frustum_top - camera.frustum_bottom) / 2 / camera.frustum_near
        unseen = depth < -radii
        for offset in (upwards, sideways):
            unseen |= offset > depth * slope + radii * math.hypot(1.0, slope)
        return unseen
