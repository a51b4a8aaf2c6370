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
from sim_envs.visibility import BoundingBoxes, Frustum, Window, is_reflective

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
        seen = frustum.shows(boxes, Window())
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
