"""What a perturbed LIBERO changes of a task beside its problem file and its initial states."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sim_envs.libero.plus import noise
from sim_envs.libero.plus.names import View
from sim_envs.libero.plus.poses import arm_pose, camera_pose

NoiseDraws = Literal["episode", "published"]
"""How sensor noise is drawn: from the episode's key and control step, or from NumPy's global generator, as
LIBERO-plus does: in every control step, after the draws of the reset."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perturbation:
    """What a simulator changes; by default nothing.

    Attributes:
        view: Pose of `agentview`; None for LIBERO's own, which LIBERO-plus rounds.
        robot: Number of the arm's initial joints. A stored initial state overwrites these; what stays
            is the arm controller's: the orientation it holds until it is told another, and its null space.
        noise: Setting of the noise on `agentview`; 0 for none.
        draws: How it is drawn.
        code: The folder with the code that defines scenes and objects of its own; None for LIBERO's.
    """

    view: View | None = None
    robot: int = 0
    noise: int = 0
    draws: NoiseDraws = "episode"
    code: Path | None = None

    def apply(self, env: Any, camera: str) -> None:
        """Change LIBERO's environment, just built: from the next reset on."""
        if self.robot:
            env.robot_configs[0]["initial_qpos"] = arm_pose(self.robot)
        if self.view is not None:
            element = env.model.worldbody.find(f".//camera[@name='{camera}']")
            written = (np.array(element.get(name).split(), np.float64) for name in ("pos", "quat"))
            position, quaternion = camera_pose(self.view, *written)
            model = env.sim.model._model
            number = model.camera(camera).id
            model.cam_pos[number] = position
            model.cam_quat[number] = quaternion / np.linalg.norm(quaternion)


class SensorNoise:
    """The noise on a camera in one episode."""

    def __init__(self, setting: int, side: int, *, digest: int, stream: Any = None) -> None:
        """Begin an episode.

        Args:
            setting: Number of the noise.
            side: Height and width of pictures.
            digest: Number of the episode, from which noise is drawn at each control step.
            stream: State of NumPy's generator after the reset, from which it is drawn instead; None for none.
        """
        self._setting, self._side, self._digest = setting, side, digest
        self._step, self._drawn = 0, None
        self._stream: np.random.RandomState | None = None
        if stream is not None:
            self._stream = np.random.RandomState()
            self._stream.set_state(stream)
            self._drawn = noise.draw(setting, side, self._stream)  # for the picture that the reset returns

    def step(self) -> None:
        """One control step."""
        self._step += 1
        if self._stream is not None:
            self._drawn = noise.draw(self._setting, self._side, self._stream)

    def apply(self, picture: noise.Picture) -> noise.Picture:
        """The noisy picture, the same whenever it is asked for at this control step."""
        drawn = self._drawn
        if self._stream is None:
            seeds = np.random.SeedSequence((self._digest, self._step))
            drawn = noise.draw(self._setting, self._side, np.random.RandomState(np.random.MT19937(seeds)))
        return noise.apply(self._setting, picture, drawn)
