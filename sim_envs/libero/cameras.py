"""The agent-view and wrist cameras: capturing takes microseconds, drawing is expensive and can wait."""

import mujoco
import numpy as np
from jaxtyping import UInt8

from sim_envs.rendering import Renderer, View

CAMERAS = {"image": "agentview", "wrist_image": "robot0_eye_in_hand"}
"""Policies' camera names to LIBERO's."""

_COLLISION_GROUP, _VISUAL_GROUP = 0, 1


class Cameras:
    """Both cameras of one model. They share an OpenGL context that the first `develop` opens.

    `capture` records MuJoCo scenes, and `develop` draws the last ones. So the simulator can capture at every
    control step, when LIBERO would render, and draw only the images that are used.

    An instance belongs to the thread that develops first, as OpenGL contexts do.
    """

    def __init__(self, model: mujoco.MjModel, *, size: int) -> None:
        """Set up the cameras of a compiled model for square images of `size` pixels a side."""
        self._model = model
        self._size = size
        self._option = mujoco.MjvOption()
        self._option.geomgroup[_COLLISION_GROUP] = 0
        self._option.geomgroup[_VISUAL_GROUP] = 1
        self._views = {name: View(model, camera) for name, camera in CAMERAS.items()}
        self._renderer: Renderer | None = None

    def capture(self, data: mujoco.MjData) -> None:
        """Capture the current scenes, replacing the previous ones."""
        for view in self._views.values():
            view.capture(self._model, data, self._option)

    def develop(self, camera: str) -> UInt8[np.ndarray, "height width 3"]:
        """Draw a camera's captured scene, rotated by 180° as in the training data of published policies.

        Raises:
            UsageError: Nothing can render on this machine.
        """
        if self._renderer is None:
            self._renderer = Renderer(self._model, height=self._size, width=self._size)
        # OpenGL's rows run upwards, LIBERO keeps them so, and policies see that turned by 180°: a mirror
        # image in which up is up.
        view = self._views[camera]
        view.cull()
        return np.ascontiguousarray(self._renderer.draw(view.scene)[::-1, ::-1])

    def close(self) -> None:
        """Free the OpenGL context and its memory, if it was opened."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
