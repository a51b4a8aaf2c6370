"""What a perturbed LIBERO changes of a task beside its problem file and its initial states."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sim_envs.libero.plus.names import View

NoiseDraws = Literal["episode", "published"]
"""How sensor noise is drawn: from the episode's key and control step, or from NumPy's global generator, as
LIBERO-plus does: in every control step, after the draws of the reset."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perturbation:
    """What a simulator changes; by default nothing."""

    view: View | None = None  # pose of `agentview`; None for LIBERO's own, which LIBERO-plus rounds
    # Number of the arm's initial joints. A stored initial state overwrites these; what stays is the arm
    # controller's: the orientation it holds until it is told another, and its null space.
    robot: int = 0
    noise: int = 0  # setting of the noise on `agentview`; 0 for none
    draws: NoiseDraws = "episode"  # how it is drawn
    code: Path | None = None  # the folder with the code of its own scenes and objects; None for LIBERO's

    def apply(self, env: Any, camera: str) -> None:
        """Change LIBERO's environment, just built: from the next reset on."""
        if self.robot == 0 and self.view is None:
            return
        from sim_envs.libero.plus.poses import arm_pose, camera_pose  # imports SciPy

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
