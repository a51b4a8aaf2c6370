"""The expert: turns a task's goals into skills and plays them, a chunk of actions at a time."""

import numpy as np
from jaxtyping import Float64
from typing_extensions import override

from sim_envs.experts.controls import HORIZON, ScriptedPolicy
from sim_envs.experts.motion import Motion, Outcome, Phase, progress
from sim_envs.experts.scene import Goal, Scene, Simulator
from sim_envs.experts.skills import achieve, skill_for
from sim_envs.experts.steering import CONTROL_SECONDS, ArmModel, GripperState, Plan
from sim_envs.world import EpisodeKey

_STILL = (0.002, 0.02)
_STILL_STEPS = 4
"""Who moves less than this (m, rad) in this many control steps is stuck."""


class Expert(ScriptedPolicy):
    """A privileged-state controller, bound to the simulator it acts in.

    Its actions are a function of the states it has seen since the reset; the episode key does not enter.
    """

    def __init__(self, sim: Simulator) -> None:
        """Bind to a simulator, which is read and never written.

        Raises:
            UsageError: The task has a goal that no skill achieves.
        """
        self._sim = sim
        for goal in Goal.all_of(sim.env):
            skill_for(goal)
        self._playing: _Playing | None = None

    @property
    def phase(self) -> Phase:
        """What the expert was busy with when it was last queried."""
        return self._playing.phase if self._playing else Phase.APPROACH

    @override
    def reset(self, key: EpisodeKey) -> None:
        self._playing = None

    @override
    def query(self) -> Float64[np.ndarray, "horizon 7"]:
        if self._playing is None:
            self._playing = _Playing(Scene(self._sim.env))
        return self._playing.chunk()


class _Playing:
    """One episode: the skill under way, and the motion it asked for."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._skill = achieve(scene)
        self._begun = _Begun(scene, next(self._skill))

    @property
    def phase(self) -> Phase:
        return self._begun.motion.phase

    def chunk(self) -> Float64[np.ndarray, "horizon 7"]:
        """Look at the scene, go on to the next motion if one has ended, and plan the next steps."""
        while (outcome := self._begun.outcome()) is not None:
            self._begun = _Begun(self._scene, self._skill.send(outcome))
        return self._begun.actions()


class _Begun:
    """A motion that has begun, and how far it has come."""

    def __init__(self, scene: Scene, motion: Motion) -> None:
        self.motion = motion
        self._scene = scene
        self._began = self._planned = scene.seconds
        self._arrived: float | None = None
        self._plan: Plan | None = None
        self._planned_at = scene.gripper
        self._passed = 0

    def outcome(self) -> Outcome | None:
        """How the motion has ended, or None while it goes on."""
        motion = self.motion
        if motion.interrupted():
            return Outcome.INTERRUPTED
        if self._is_at_end():
            self._arrived = self._scene.seconds if self._arrived is None else self._arrived
            if self._steps_since(self._arrived) >= motion.dwell or motion.finished():
                return Outcome.REACHED
        elif self._is_stuck():
            return Outcome.STUCK
        return Outcome.TIMEOUT if self._steps_since(self._began) >= motion.steps else None

    def actions(self) -> Float64[np.ndarray, "horizon 7"]:
        """The next actions on the motion's path."""
        scene = self._scene
        state = GripperState(pose=scene.gripper, velocity=scene.gripper_velocity)
        arm = ArmModel.near(scene.mobility)
        self._plan = arm.follow(self.motion.path(), state, passed=self._passed, steps=HORIZON)
        self._planned, self._planned_at = scene.seconds, scene.gripper
        return self._plan.actions(self.motion.grip)

    def _is_at_end(self) -> bool:
        """Whether the last waypoint is reached; those before it count as passed if that was foreseen."""
        path = self.motion.path()
        if self._plan is not None:
            steps = min(self._steps_since(self._planned), len(self._plan.deltas))
            self._passed = min(int(self._plan.passed[steps]), len(path) - 1)
        return progress(path, self._scene.gripper, self._passed) == len(path)

    def _is_stuck(self) -> bool:
        """Whether the gripper has not moved since the last plan, though it should have."""
        twist = self._planned_at.twist_to(self._scene.gripper)
        still = np.linalg.norm(twist[:3]) < _STILL[0] and np.linalg.norm(twist[3:]) < _STILL[1]
        return bool(still) and self._steps_since(self._planned) >= _STILL_STEPS

    def _steps_since(self, seconds: float) -> int:
        return round((self._scene.seconds - seconds) / CONTROL_SECONDS)
