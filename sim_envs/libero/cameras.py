"""The two cameras: an exposure takes a few microseconds and can wait; developing it is what costs."""

import atexit
import functools
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, UInt8

from sim_envs.gl import context_class

CAMERAS = {"image": "agentview", "wrist_image": "robot0_eye_in_hand"}
"""What policies call a camera, and what LIBERO does."""

_COLLISION_GROUP, _VISUAL_GROUP = 0, 1
_MAX_GEOMS = 1000


class Cameras:
    """Both cameras of one model, sharing an OpenGL context that is opened at the first `develop`.

    `expose` records what each camera sees as MuJoCo scenes; `develop` turns the last exposure into pixels. So
    a simulator exposes at every control step, when LIBERO would have rendered, and renders only what is
    looked at.

    An instance belongs to the thread that develops first, as OpenGL contexts do.
    """

    def __init__(self, model: mujoco.MjModel, *, size: int) -> None:
        """Set up the cameras of a compiled model for square images of `size` pixels a side."""
        self._model = model
        self._size = size
        self._option = mujoco.MjvOption()
        self._option.geomgroup[_COLLISION_GROUP] = 0
        self._option.geomgroup[_VISUAL_GROUP] = 1
        self._views = {name: _View(model, camera) for name, camera in CAMERAS.items()}
        self._renderer: _Renderer | None = None

    def expose(self, data: mujoco.MjData) -> None:
        """Record what the cameras see now; the exposure before is lost."""
        for view in self._views.values():
            view.expose(self._model, data, self._option)

    def develop(self) -> Mapping[str, UInt8[np.ndarray, "height width 3"]]:
        """The pixels of the last exposure, rotated by 180° as the published policies were trained.

        Raises:
            UsageError: Nothing can render on this machine.
        """
        if self._renderer is None:
            self._renderer = _Renderer(self._model, size=self._size)
        # OpenGL's rows run upwards, LIBERO keeps them so, and policies see that turned by 180°: a mirror
        # image in which up is up.
        for view in self._views.values():
            view.hide_unseen()
        return {
            name: np.ascontiguousarray(self._renderer.draw(view.scene)[::-1, ::-1])
            for name, view in self._views.items()
        }

    def close(self) -> None:
        """Free the OpenGL context and its memory, if it was opened."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


class _Renderer:
    """An OpenGL context with one model's meshes and textures in it.

    Freed by `close`, else when nothing refers to it any more, at the latest before the interpreter takes
    OpenGL down.
    """

    def __init__(self, model: mujoco.MjModel, *, size: int) -> None:
        self._gl = context_class()(size, size)
        self._gl.make_current()
        self._viewport = mujoco.MjrRect(0, 0, size, size)
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self.close = weakref.finalize(self, _free, self._gl, self._context)
        self.close.atexit = False  # pyrefly: ignore[missing-attribute] - a property that its stub lacks
        _open_renderers.add(self)
        _free_at_exit()

    def draw(self, scene: mujoco.MjvScene) -> UInt8[np.ndarray, "height width 3"]:
        self._gl.make_current()
        pixels = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        mujoco.mjr_render(self._viewport, scene, self._context)
        mujoco.mjr_readPixels(pixels, None, self._viewport, self._context)
        return pixels


_open_renderers: weakref.WeakSet[_Renderer] = weakref.WeakSet()


@functools.cache
def _free_at_exit() -> None:
    """Have what is left open freed at exit, before EGL goes: exit handlers run last come, first served."""
    atexit.register(lambda: [renderer.close() for renderer in list(_open_renderers)])


def _free(gl: Any, context: mujoco.MjrContext) -> None:
    gl.make_current()
    context.free()
    gl.free()


class _View:
    """One camera and the scene it saw last."""

    def __init__(self, model: mujoco.MjModel, camera: str) -> None:
        self.scene = mujoco.MjvScene(model, maxgeom=_MAX_GEOMS)
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = model.camera(camera).id
        self._perturbation = mujoco.MjvPerturb()
        self._perturbation.skinselect = -1
        self._radii = model.geom_rbound.copy()
        self._casts_shadows = bool(model.light_castshadow.any())

    def expose(self, model: mujoco.MjModel, data: mujoco.MjData, option: mujoco.MjvOption) -> None:
        mujoco.mjv_updateScene(
            model, data, option, self._perturbation, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self.scene
        )

    def hide_unseen(self) -> None:
        """Leave out of the scene what lies wholly outside the picture. It changes no pixel.

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
        slope = (camera.frustum_top - camera.frustum_bottom) / 2 / camera.frustum_near  # pictures are square
        reach = depth * slope + radii * math.hypot(1.0, slope)
        sideways, upwards = np.abs(offsets @ np.cross(ahead, up)), np.abs(offsets @ up)
        return (depth < -radii) | (sideways > reach) | (upwards > reach)
