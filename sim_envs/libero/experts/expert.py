"""The scripted expert: turns a task's goals into skills, and executes them in action chunks.

Noise disturbs executed actions, never recorded labels, so that demonstrations show recovery (after DART,
Laskey et al., 2017, arXiv 1703.09327).
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from sim_envs.libero.experts.motions import GripperMotion, Skill, Waypoint, progress
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.experts.skills import achieve, achieve_in_order, require_skills
from sim_envs.libero.experts.steering import ACTION_SCALE, CONTROL_SECONDS, ArmModel
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import LIBERO_INTERFACE
from sim_envs.scripted.policy import HORIZON, checked_level
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey

Actions = Float64[np.ndarray, "horizon 7"]

_SLOWEST = 0.5  # largest reduction of the pace at level 1, as a fraction
_ROOMY = 0.015  # minimal position tolerance (m) of waypoints that may be shifted
_ASIDE = 0.015  # standard deviation (m) of their shift sideways, at level 1
_HIGHER = 0.06  # largest shift (m) upwards, at level 1

_JITTER = np.array([0.1, 0.1, 0.1, 0.03, 0.03, 0.03, 0.0])
"""Standard deviation of the noise on every executed action at level 1."""

_DISTURBED = 0.08  # probability per query that a disturbance begins, at level 1
_MISSED = 0.3  # probability per query that closing fingers open instead, at level 1
_QUERIES = 2  # maximal duration of a disturbance, in queries
_DRIFT = (0.2, 0.7)  # range of the offset that a drift adds to every action


class ExpertNoise:
    """All randomness of a noisy expert in one episode: a function of level and episode key."""

    def __init__(self, level: float, key: EpisodeKey) -> None:
        """Start an episode; the level is from 0 (none) to 1."""
        self._level = level
        self._draws = np.random.default_rng([key.digest(), round(level * 1e6)])
        self._kind: Literal["pause", "drift", "missed grasp"] = "pause"
        self._left = 0
        self._drift = np.zeros(7)

    def motion_variation(self, motion: GripperMotion) -> tuple[float, Float64[np.ndarray, "waypoints 3"]]:
        """Sample the pace of a new motion (fraction of full speed), and the shift (m) of each waypoint."""
        path = motion.path()
        shifts = self._draws.normal(0.0, _ASIDE * self._level, (len(path), 3))
        shifts[:, 2] = self._draws.uniform(0.0, _HIGHER * self._level, len(path))
        for shift, waypoint in zip(shifts, path, strict=True):
            shift[:] *= waypoint is not path[-1] and np.isfinite(waypoint.near) and waypoint.near >= _ROOMY
        return 1.0 - _SLOWEST * self._level * float(self._draws.uniform()), shifts

    def disturb(self, actions: Actions, phase: Phase) -> tuple[Actions, bool]:
        """The actions with noise, and whether a disturbance is active."""
        chance, kind, length = self._draws.uniform(), self._draws.integers(2), self._draws.integers(_QUERIES)
        way, size = self._draws.normal(size=3), self._draws.uniform(*_DRIFT)
        if not self._left:
            self._kind = "missed grasp" if phase is Phase.GRASP else ("pause", "drift")[kind]
            limit = _MISSED if phase is Phase.GRASP else _DISTURBED
            self._drift[:3] = size * way / np.linalg.norm(way)
            self._left = 1 + int(length) if chance < limit * self._level else 0
        noisy = actions + self._level * _JITTER * self._draws.normal(size=actions.shape)
        disturbed = self._left > 0
        if disturbed:
            self._left -= 1
            if self._kind == "drift":
                noisy += self._drift
            else:
                noisy[:, :6] = 0.0
            if self._kind == "missed grasp":
                noisy[:, 6] *= -1.0
        return np.clip(noisy, -1.0, 1.0), disturbed


_HOLD = np.tile(LIBERO_INTERFACE.hold_action(np.empty(8), None), (HORIZON, 1))
"""Holds still with an open gripper."""

_STILL = (0.002, 0.02)
_STILL_STEPS = 4  # a gripper that moves less than this (m, rad) in this many control steps is stuck


class Expert:
    """A controller with access to the simulator's state. Implements `ScriptedPolicy`.

    Its actions are a function of the states since the reset, and with noise also of the episode key and the
    noise level.

    Attributes:
        intended: See `ScriptedPolicy`.
        phase: The phase at the last query.
    """

    def __init__(self, sim: LiberoSim, noise: float = 0.0) -> None:
        """Bind to a simulator with a task loaded, which is only read.

        Args:
            sim: The simulator.
            noise: Variation of pace and path, and frequency of mistakes, from 0 (none) to 1.

        Raises:
            UsageError: No skill achieves one of the goals, or the noise is not between 0 and 1.
        """
        self._sim = sim
        self._level = checked_level(noise)
        require_skills(ExpertScene(sim.env))
        self._noise: ExpertNoise | None = None
        self._episode: Iterator[tuple[Actions, Actions, Phase]] | None = None
        self.intended, self.phase = _HOLD.copy(), Phase.APPROACH

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode, after the simulator's own reset."""
        self._noise = ExpertNoise(self._level, key) if self._level > 0.0 else None
        self._episode = None
        self.intended, self.phase = _HOLD.copy(), Phase.APPROACH

    def query(self, state: Float64[np.ndarray, " state"]) -> Actions:
        """The next actions on the path of the current motion."""
        del state  # it reads the simulator
        if self._sim.shows_cue:  # an arm on its way would remember for a policy without memory
            return self.intended
        if self._episode is None:
            scene, sequence = ExpertScene(self._sim.env, self._sim.predicted_motion), self._sim.sequence
            skill = achieve(scene) if sequence is None else achieve_in_order(scene, sequence)
            self._episode = _play(scene, skill, self._noise)
        executed, self.intended, self.phase = next(self._episode)
        return executed


def _play(
    scene: ExpertScene, skill: Skill, noise: ExpertNoise | None
) -> Iterator[tuple[Actions, Actions, Phase]]:
    """Executed and intended actions, and the phase, of each query of an episode."""
    active = _ActiveMotion(scene, next(skill), noise)
    while True:
        while active.has_ended():
            active = _ActiveMotion(scene, next(skill), noise)
        intended = executed = active.actions()
        if noise is not None:
            executed, disturbed = noise.disturb(active.varied_actions(), active.motion.phase)
            if disturbed:
                active.forget_plan()
        yield executed, intended, active.motion.phase


class _ActiveMotion:
    """A motion in progress, with its plan."""

    def __init__(self, scene: ExpertScene, motion: GripperMotion, noise: ExpertNoise | None) -> None:
        self.motion = motion
        self._scene = scene
        self._pace, self._shifts = noise.motion_variation(motion) if noise else (1.0, np.zeros((0, 3)))
        self._began = self._planned = scene.seconds
        self._arrived: float | None = None
        self._predicted: Int64[np.ndarray, " steps"] | None = None
        self._planned_at = scene.gripper
        self._passed = 0

    def has_ended(self) -> bool:
        """Whether the motion is interrupted, has reached its end, is stuck, or takes too long."""
        motion, gripper = self.motion, self._scene.gripper
        if motion.interrupted():
            return True
        path, over = motion.path(), False
        if self._predicted is not None:  # waypoints count as passed if the plan predicted it
            steps = min(self._steps_since(self._planned), len(self._predicted) - 1)
            self._passed = min(int(self._predicted[steps]), len(path) - 1)
        if progress(path, gripper, self._passed) == len(path):
            self._arrived = self._scene.seconds if self._arrived is None else self._arrived
            over = self._steps_since(self._arrived) >= motion.dwell or motion.finished()
        elif self._predicted is not None:  # it is stuck if it has not moved since, though it should have
            over = self._planned_at.is_within(gripper, *_STILL) and (
                self._steps_since(self._planned) >= _STILL_STEPS
            )
        return over or self._steps_since(self._began) >= motion.steps

    def actions(self) -> Actions:
        """The next actions on the motion's path."""
        return self._follow(self.motion.path(), pace=1.0)

    def varied_actions(self) -> Actions:
        """The next actions on the path as varied by noise."""
        path = [
            dataclasses.replace(point, pose=point.pose.shifted(shift))
            for point, shift in zip(self.motion.path(), self._shifts, strict=True)
        ]
        return self._follow(path, pace=self._pace)

    def forget_plan(self) -> None:
        """Discard the plan after a disturbance: it counts neither as progress nor as being stuck."""
        self._predicted = None

    def _follow(self, path: Sequence[Waypoint], *, pace: float) -> Actions:
        scene = self._scene
        arm = ArmModel(scene.mobility)
        deltas, self._predicted = arm.follow(
            path, scene.gripper, scene.gripper_velocity, passed=self._passed, steps=HORIZON, pace=pace
        )
        self._planned, self._planned_at = scene.seconds, scene.gripper
        grips = np.full((len(deltas), 1), self.motion.grip)
        return np.clip(np.concatenate([deltas / ACTION_SCALE, grips], axis=1), -1.0, 1.0)

    def _steps_since(self, seconds: float) -> int:
        return round((self._scene.seconds - seconds) / CONTROL_SECONDS)
