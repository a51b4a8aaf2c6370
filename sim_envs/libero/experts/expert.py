"""The scripted expert: turns a task's goals into skills, and executes them in action chunks."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64
from typing_extensions import override

from sim_envs.libero.conventions import LIBERO_INTERFACE
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.experts.skills import achieve, require_skills
from sim_envs.libero.experts.steering import CONTROL_SECONDS, ArmModel, GripperState, Plan
from sim_envs.libero.sim import LiberoSim
from sim_envs.scripted.motion import GripperMotion, MotionOutcome, Waypoint, progress
from sim_envs.scripted.noise import ExpertNoise, MotionVariation, checked_level
from sim_envs.scripted.policy import HORIZON, ScriptedPolicy
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey

_HOLD = np.tile(LIBERO_INTERFACE.hold_action(np.empty(8), None), (HORIZON, 1))
"""Holds still with an open gripper."""

_STILL = (0.002, 0.02)
_STILL_STEPS = 4
"""A gripper that moves less than this (m, rad) in this many control steps is stuck."""


class Expert(ScriptedPolicy):
    """A controller with access to the simulator's state.

    Its actions are a function of the states since the reset, and with noise also of the episode key and the
    noise level.
    """

    def __init__(self, sim: LiberoSim, noise: float = 0.0) -> None:
        """Bind to a simulator, which is only read.

        Args:
            sim: A simulator with a task loaded.
            noise: Variation of pace and path, and frequency of mistakes, from 0 (none) to 1.

        Raises:
            UsageError: No skill achieves one of the goals, or the noise is not between 0 and 1.
        """
        self._sim = sim
        self._level = checked_level(noise)
        self._noise: ExpertNoise | None = None
        require_skills(sim.env)
        self._episode: _ExpertEpisode | None = None

    @property
    def phase(self) -> Phase:
        """The phase at the last query."""
        return self._episode.phase if self._episode else Phase.APPROACH

    @override
    def reset(self, key: EpisodeKey) -> None:
        self._episode = None
        self._noise = ExpertNoise(self._level, key) if self._level > 0.0 else None

    @override
    def query(self, state: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, "horizon 7"]:
        del state  # it reads the simulator
        if self._episode is None:
            scene = ExpertScene(self._sim.env, self._sim.predicted_motion)
            self._episode = _ExpertEpisode(scene, self._noise)
        return self._episode.chunk()

    @property
    @override
    def intended(self) -> Float64[np.ndarray, "horizon 7"]:
        return self._episode.intended if self._episode else _HOLD.copy()


class _ExpertEpisode:
    """One episode: the current skill and motion."""

    def __init__(self, scene: ExpertScene, noise: ExpertNoise | None) -> None:
        self._scene = scene
        self._noise = noise
        self._skill = achieve(scene)
        self._active = self._begin(next(self._skill))
        self.intended = _HOLD.copy()

    @property
    def phase(self) -> Phase:
        return self._active.motion.phase

    def chunk(self) -> Float64[np.ndarray, "horizon 7"]:
        """Continue with the next motion if the current one has ended, and plan the next steps."""
        while (outcome := self._active.outcome()) is not None:
            self._active = self._begin(self._skill.send(outcome))
        self.intended = self._active.actions()
        if self._noise is None:
            return self.intended
        executed, disturbed = self._noise.disturb(self._active.varied_actions(), self.phase)
        if disturbed:
            self._active.forget_plan()
        return executed

    def _begin(self, motion: GripperMotion) -> "_ActiveMotion":
        variation = self._noise.motion_variation(motion) if self._noise else None
        return _ActiveMotion(self._scene, motion, variation)


class _ActiveMotion:
    """A motion in progress, with its plan."""

    def __init__(self, scene: ExpertScene, motion: GripperMotion, variation: MotionVariation | None) -> None:
        self.motion = motion
        self._scene = scene
        self._variation = variation
        self._began = self._planned = scene.seconds
        self._arrived: float | None = None
        self._plan: Plan | None = None
        self._planned_at = scene.gripper
        self._passed = 0

    def outcome(self) -> MotionOutcome | None:
        """How the motion ended; None while it continues."""
        motion = self.motion
        if motion.interrupted():
            return MotionOutcome.INTERRUPTED
        if self._is_at_end():
            self._arrived = self._scene.seconds if self._arrived is None else self._arrived
            if self._steps_since(self._arrived) >= motion.dwell or motion.finished():
                return MotionOutcome.REACHED
        elif self._is_stuck():
            return MotionOutcome.STUCK
        return MotionOutcome.TIMEOUT if self._steps_since(self._began) >= motion.steps else None

    def actions(self) -> Float64[np.ndarray, "horizon 7"]:
        """The next actions on the motion's path."""
        return self._follow(self.motion.path(), pace=1.0)

    def varied_actions(self) -> Float64[np.ndarray, "horizon 7"]:
        """The next actions on the varied path."""
        assert self._variation is not None
        return self._follow(self._variation.path(self.motion.path()), pace=self._variation.pace)

    def forget_plan(self) -> None:
        """Discard the plan after a disturbance: it counts neither as progress nor as being stuck."""
        self._plan = None

    def _follow(self, path: Sequence[Waypoint], *, pace: float) -> Float64[np.ndarray, "horizon 7"]:
        scene = self._scene
        state = GripperState(pose=scene.gripper, velocity=scene.gripper_velocity)
        arm = ArmModel.near(scene.mobility)
        self._plan = arm.follow(path, state, passed=self._passed, steps=HORIZON, pace=pace)
        self._planned, self._planned_at = scene.seconds, scene.gripper
        return self._plan.actions(self.motion.grip)

    def _is_at_end(self) -> bool:
        """Whether the last waypoint is reached; earlier ones count as passed if the plan predicted it."""
        path = self.motion.path()
        if self._plan is not None:
            steps = min(self._steps_since(self._planned), len(self._plan.deltas))
            self._passed = min(int(self._plan.passed[steps]), len(path) - 1)
        return progress(path, self._scene.gripper, self._passed) == len(path)

    def _is_stuck(self) -> bool:
        """Whether the gripper has not moved since the last plan, though it should have."""
        if self._plan is None:
            return False
        twist = self._planned_at.twist_to(self._scene.gripper)
        still = np.linalg.norm(twist[:3]) < _STILL[0] and np.linalg.norm(twist[3:]) < _STILL[1]
        return bool(still) and self._steps_since(self._planned) >= _STILL_STEPS

    def _steps_since(self, seconds: float) -> int:
        return round((self._scene.seconds - seconds) / CONTROL_SECONDS)
