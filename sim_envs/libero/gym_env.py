"""LIBERO's suites as Gymnasium environments: `gymnasium.make("oxygen_eval/libero_object-v0", task_id=3)`.

Importing `sim_envs` registers them. One step is one control step and renders both cameras, as Gymnasium's
interface has it; evaluation runs on `LiberoSim`, which renders only at queries.
"""

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import UInt8

from configs.errors import UsageError, unknown
from configs.load import load
from configs.schema import SuiteConfig
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.cameras import CAMERAS
from sim_envs.libero.libero_env import CONTROL_HZ
from sim_envs.libero.sim import ACTION_SIZE, LiberoSim
from sim_envs.libero.tasks import get_task, init_states

# Far outside of what a robot on a table can reach: metres, radians, metres.
_STATE_BOUND = np.array([10.0, 10, 10, 2 * np.pi, 2 * np.pi, 2 * np.pi, 1, 1])

_Observed = dict[str, Any]


class LiberoEnv(gymnasium.Env[_Observed, np.ndarray]):
    """One task of a suite, under the suite's published protocol.

    Observations hold both images and the state; the instruction is in `info["language"]`. An episode
    terminates when the task's goal holds (`info["is_success"]`) and is truncated at the protocol's step
    limit.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": int(CONTROL_HZ)}  # noqa: RUF012  (Gymnasium's)

    def __init__(
        self,
        suite: str,
        *,
        task_id: int = 0,
        assets: AssetSet | str | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Load a task.

        Args:
            suite: Name of the suite.
            task_id: Index of the task in LIBERO's order.
            assets: An asset set, or its source as `assets.find_assets` takes it.
            max_steps: Control steps until an episode is truncated; the suite's published number if None.
            render_mode: `rgb_array` for `render` to return the agent camera's image, or None.

        Raises:
            UsageError: There is no such suite, task or render mode, or LIBERO cannot be loaded.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise unknown("render mode", render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self.task = get_task(suite, task_id)
        self._protocol = load(SuiteConfig, suite)
        self._max_steps = self._protocol.max_steps if max_steps is None else max_steps
        self._sim = LiberoSim(self.task, assets=assets, camera_size=self._protocol.camera_size)
        self._steps = 0
        size = self._protocol.camera_size
        image = spaces.Box(0, 255, (size, size, 3), np.uint8)
        state = spaces.Box(-_STATE_BOUND, _STATE_BOUND, dtype=np.float64)
        self.observation_space = spaces.Dict({**dict.fromkeys(CAMERAS, image), "state": state})
        self.action_space = spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)
        self._picture: UInt8[np.ndarray, "height width 3"] | None = None

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[_Observed, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds LIBERO for this episode, and this environment's choice of whatever is left open in
                later ones.
            options: `init_id`, the initial state: a stored one, or from 1000 on one that LIBERO's placement
                draws; any of the stored ones, at random, if not given.

        Raises:
            UsageError: Unknown options, or no such initial state.
        """
        super().reset(seed=seed)
        given = dict(options or {})
        init_id = given.pop("init_id", None)
        if given:
            raise unknown("reset option", next(iter(given)), ["init_id"])
        if init_id is None:
            init_id = int(self.np_random.integers(len(init_states(self.task))))
        if not isinstance(init_id, int | np.integer):
            raise UsageError(f"init_id is {init_id!r}, but must be a whole number")
        episode_seed = int(self.np_random.integers(2**32)) if seed is None else seed
        self._steps = 0
        self._sim.reset(
            init_id=int(init_id), seed=episode_seed % 2**32, settle_steps=self._protocol.settle_steps
        )
        return self._observe(), self._info(is_success=False) | {"init_id": init_id, "seed": episode_seed}

    def step(self, action: np.ndarray) -> tuple[_Observed, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one control step; the reward is 1 at success, else 0.

        Raises:
            ValueError: The action has another shape than [7] or is not finite; nothing was run.
        """
        success = self._sim.advance(np.asarray(action, np.float64)[None]).success
        self._steps += 1
        truncated = not success and self._steps >= self._max_steps
        return self._observe(), float(success), success, truncated, self._info(is_success=success)

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """The agent camera's image of the last step; None without a render mode or before the first
        episode."""
        return None if self._picture is None else self._picture.copy()

    def close(self) -> None:
        """Release the simulator and its renderer. A second call does nothing."""
        self._sim.close()

    def _observe(self) -> _Observed:
        seen = self._sim.observe()
        if self.render_mode is not None:
            self._picture = seen.images["image"].copy()  # what is observed is the caller's to change
        return {**seen.images, "state": seen.state}

    def _info(self, *, is_success: bool) -> dict[str, Any]:
        return {"is_success": is_success, "language": self.task.language, "steps": self._steps}
