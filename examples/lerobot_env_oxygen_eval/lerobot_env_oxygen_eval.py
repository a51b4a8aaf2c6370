"""A plugin of LeRobot: `lerobot-eval` plays this project's suites, as Gymnasium environments.

uv pip install 'lerobot==0.6.1' . ./examples/lerobot_env_oxygen_eval      # in this project's folder
lerobot-eval --policy.path=POLICY --env.type=oxygen_eval --env.task=droid_tabletop --env.task_ids='[0, 1]'
"""

from dataclasses import dataclass
from typing import Any

from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs import EnvConfig

from sim_envs.suite import open_suite


@EnvConfig.register_subclass("oxygen_eval")
@dataclass
class OxygenEvalEnv(EnvConfig):
    """The tasks of a suite; all of them without `task_ids`."""

    task: str = "libero_object"
    task_ids: list[int] | None = None
    max_steps: int | None = None  # the protocol's
    package_name = "sim_envs"  # registers the environments

    def __post_init__(self) -> None:
        suite = open_suite(self.task)
        self.fps = round(suite.protocol.control_hz)
        self.task_ids = self.task_ids or [task.task_id for task in suite.tasks()]
        seen, action = suite.interface.observation, suite.interface.action
        images = {camera.name: (*camera.size, 3) for camera in seen.cameras}
        self.features = {
            **{f"pixels/{name}": PolicyFeature(FeatureType.VISUAL, size) for name, size in images.items()},
            "agent_pos": PolicyFeature(FeatureType.STATE, (seen.state_size,)),
            "action": PolicyFeature(FeatureType.ACTION, (action.size,)),
        }
        names = {f"pixels/{name}": f"observation.images.{name}" for name in images}
        self.features_map = {**names, "agent_pos": "observation.state", "action": "action"}

    @property
    def gym_id(self) -> str:
        """Name of the environment."""
        return f"oxygen_eval/{self.task}-v0"

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment."""
        shown = {"obs_type": "pixels_agent_pos", "render_mode": "rgb_array"}
        return {"task_id": self._task_id, "max_steps": self.max_steps, **shown}

    def create_envs(self, *how: Any, **more: Any) -> dict[str, dict[int, Any]]:
        """The environments of each task, as many as LeRobot says."""
        envs = {}
        for task_id in self.task_ids:
            self._task_id = task_id
            envs[task_id] = super().create_envs(*how, **more)[self.type][0]
        return {self.task: envs}
