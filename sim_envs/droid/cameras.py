"""The exterior and wrist cameras, rendered upright, once per query."""

import mujoco
import numpy as np
from jaxtyping import UInt8

from sim_envs.droid.conventions import EXTERIOR_IMAGE, WRIST_IMAGE, image_size
from sim_envs.droid.robot import WRIST_CAMERA
from sim_envs.droid.scene import EXTERIOR_CAMERA
from sim_envs.rendering import Renderer, View

CAMERAS = {EXTERIOR_IMAGE: EXTERIOR_CAMERA, WRIST_IMAGE: WRIST_CAMERA}
"""Policies' camera names to the model's."""

_VISUAL_GROUP = 1


class DroidCameras:
    """Both cameras of one model. They share an OpenGL context that is opened at the first image."""

    def __init__(self, model: mujoco.MjModel, *, height: int) -> None:
        """Set up the cameras of a compiled model for images of that many rows."""
        self._model = model
        self._height, self._width = image_size(height)
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = 0
        self._option.geomgroup[_VISUAL_GROUP] = 1
        self._option.sitegroup[:] = 0
        self._views = {name: View(model, camera) for name, camera in CAMERAS.items()}
        self._renderer: Renderer | None = None

    def take(self, data: mujoco.MjData, camera: str) -> UInt8[np.ndarray, "height width 3"]:
        """Render a camera.

        Raises:
            UsageError: No rendering backend works on this machine.
        """
        if self._renderer is None:
            self._renderer = Renderer(self._model, height=self._height, width=self._width)
        view = self._views[camera]
        view.capture(self._model, data, self._option)
        return np.ascontiguousarray(self._renderer.draw(view.scene)[::-1])

    def close(self) -> None:
        """Free the OpenGL context and its memory, if it was opened."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
