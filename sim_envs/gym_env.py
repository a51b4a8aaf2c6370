"""Suites as Gymnasium environments: `gymnasium.make("oxygen_eval/libero_object-v0", task_id=3)`.

Importing `sim_envs` registers them. A step is one control step and renders all cameras, as Gymnasium's
interface requires. Evaluation uses `World` instead, which renders only at queries.
"""

import warnings
from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import UInt8

from contracts.errors import UsageError, unknown
from contracts.interface import Interface
from sim_envs.suite import open_suite

OBS_TYPES = ("flat", "pixels", "state", "pixels_agent_pos")  # observation formats; the last is LeRobot's


class SuiteEnv(gymnasium.Env[Any, np.ndarray]):
    """One task of a suite, under the suite's published protocol.

    An episode terminates when the task is solved (`info["is_success"]`, reward 1). Gymnasium's time limit,
    registered with the protocol's `max_steps`, truncates it. The instruction is in `info["language"]`.

    Attributes:
        task: The task's name.
        task_description: The instruction.
        world: The wrapped world.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  (Gymnasium's)

    def __init__(
        self,
        suite: str,
        *,
        task_id: int = 0,
        init_id: int | None = None,
        camera_size: int | None = None,
        variation: float | None = None,
        motion: str | None = None,
        env_seed: str | None = None,
        obs_type: str = "flat",
        assets: str = "auto",
        max_steps: int | None = None,
        render_mode: str | None = None,
        render_camera: str | None = None,
    ) -> None:
        """Open a task.

        Args:
            suite: Name of the suite, or the path of its YAML file.
            task_id: Index of the task in the suite.
            init_id: Initial state of every episode; if None, `seed` modulo their number, or a random one if
                `reset` gets no seed.
            camera_size: Height and width of camera images, pixels; as the next three, the protocol's if None.
            variation: Variation of the scenes between episodes, 0 to 1.
            motion: Motion of the object to be grasped, until it is touched, in the syntax of `--motion`.
            env_seed: Seeding of the simulator, in the syntax of `--env-seed`; `fixed` takes that of `reset`.
            obs_type: `flat`: cameras and `state`; `pixels`: `{"pixels": cameras}`; `state`: the array;
                `pixels_agent_pos`: `{"pixels": cameras, "agent_pos": state}`.
            assets: A folder of assets, or the name of a source.
            max_steps: Control steps until an episode is truncated, at most the protocol's. For more, give
                `max_episode_steps` to `gymnasium.make`.
            render_mode: `rgb_array` for `render` to return an image, or None.
            render_camera: The camera that `render` shows; all, side by side, if None.

        Raises:
            UsageError: Unknown suite, task, initial state or option, or the world cannot be opened.
        """
        options = {"camera_size": camera_size, "variation": variation, "motion": motion, "env_seed": env_seed}
        overrides: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        opened = open_suite(suite, assets=assets, **overrides)
        tasks, published = opened.tasks(), opened.protocol.max_steps
        if not 0 <= task_id < len(tasks):
            name = opened.protocol.name
            raise UsageError(f"{name} has no task {task_id}: its task ids are 0 to {len(tasks) - 1}")
        task = tasks[task_id]
        if init_id is not None:
            opened.init_ids(task).check(init_id, task)
        if max_steps is not None and not 1 <= max_steps <= published:
            raise UsageError(
                f"max_steps is {max_steps}, but the protocol's limit is {published}: give 1 to {published}, "
                f"or gymnasium.make(…, max_episode_steps={max_steps})"
            )
        cameras = opened.interface.observation.camera_names
        for kind, value, allowed in (
            ("obs_type", obs_type, OBS_TYPES),
            ("render mode", render_mode or "rgb_array", self.metadata["render_modes"]),
            ("render camera", render_camera or cameras[0], cameras),
        ):
            if value not in allowed:
                raise unknown(kind, value, allowed, remedy=f"{opened.interface.name} supports no other.")
        # Libraries that step an environment without Gymnasium's time limit read this attribute.
        self._max_episode_steps, self._truncates = max_steps or published, max_steps is not None
        self._suite, self._task, self._init_id = opened, task, init_id
        self._obs_type, self._render_camera, self.render_mode = obs_type, render_camera, render_mode
        self._steps = 0
        self._picture: UInt8[np.ndarray, "height width 3"] | None = None
        self.task, self.task_description = task.name, task.language
        self.metadata = {**self.metadata, "render_fps": round(opened.protocol.control_hz)}
        self.observation_space, self.action_space = _spaces(opened.interface, obs_type)
        self.world = opened.open(task)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds this episode's world, and this environment's random choices in later episodes.
            options: `init_id`, the initial state of this episode. Others, which libraries pass to every
                environment, are ignored with a warning.

        Raises:
            UsageError: Unknown initial state.
        """
        super().reset(seed=seed)
        if others := [name for name in options or {} if name != "init_id"]:
            # Shown once, as long as Python's default filter is in place.
            warnings.warn(f"ignored reset options: {', '.join(others)}; known is init_id", stacklevel=2)
        init_id, ids = (options or {}).get("init_id", self._init_id), self._suite.init_ids(self._task)
        if init_id is None:
            init_id = self.np_random.integers(ids.stored) if seed is None else seed % ids.stored
        if not isinstance(init_id, int | np.integer):
            raise UsageError(f"init_id is {init_id!r}, but must be a whole number")
        init_id = int(init_id)
        ids.check(init_id, self._task)
        episode_seed = int(self.np_random.integers(2**32)) if seed is None else seed
        self._steps = 0
        self.world.reset(
            init_id=init_id, seed=episode_seed % 2**32, settle_steps=self._suite.protocol.settle_steps
        )
        return self._observe(), self._info(is_success=False) | {"init_id": init_id, "seed": episode_seed}

    def step(self, action: np.ndarray) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one control step; the reward is 1 at success, else 0. An episode that has failed terminates.

        Raises:
            ValueError: The action has the wrong shape or is not finite; nothing was run.
        """
        result = self.world.advance(np.asarray(action, np.float64)[None])
        success, terminated = result.success, result.success or result.failed
        self._steps += 1
        truncated = self._truncates and not terminated and self._steps >= self._max_episode_steps
        return self._observe(), float(success), terminated, truncated, self._info(is_success=success)

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """The image of the last step; None without a render mode or before the first episode."""
        return None if self._picture is None else self._picture.copy()

    def close(self) -> None:
        """Release the simulator and its renderer. A second call does nothing."""
        self.world.close()

    def _observe(self) -> Any:
        observation = self.world.observe()
        if self.render_mode is not None:
            chosen = self._render_camera
            shown = observation.images.values() if chosen is None else [observation.images[chosen]]
            height = max(len(image) for image in shown)  # in one row, padded with black at the bottom
            row = [np.pad(image, ((0, height - len(image)), (0, 0), (0, 0))) for image in shown]
            self._picture = np.concatenate(row, axis=1)
        images = {name: image.copy() for name, image in observation.images.items()}
        return _arranged(self._obs_type, images, observation.state)

    def _info(self, *, is_success: bool) -> dict[str, Any]:
        return {"is_success": is_success, "language": self.task_description, "steps": self._steps}


def _spaces(interface: Interface, obs_type: str) -> tuple[spaces.Space[Any], spaces.Box]:
    """The spaces of observations and actions."""
    images: dict[str, spaces.Space[Any]] = {}
    for camera in interface.observation.cameras:
        assert camera.size is not None, "a world's cameras have sizes"
        images[camera.name] = spaces.Box(0, 255, (*camera.size, 3), np.uint8)
    state = spaces.Box(-np.inf, np.inf, (interface.observation.state_size,), np.float64)
    arranged = _arranged(obs_type, spaces.Dict(images), state)
    low, high = interface.action.limits or (-np.inf, np.inf)
    actions = spaces.Box(low, high, (interface.action.size,), np.float32)
    return spaces.Dict(arranged) if isinstance(arranged, dict) else arranged, actions


def _arranged(obs_type: str, images: Mapping[str, Any], state: Any) -> Any:
    """Images and state, or their spaces, in an observation format."""
    match obs_type:
        case "flat":
            return {**images, "state": state}
        case "pixels":
            return {"pixels": images}
        case "state":
            return state
        case _:
            return {"pixels": images, "agent_pos": state}
