"""A scripted expert that picks up, puts down and bars the way of a ball, in either way to command the arm.

It reads the simulation. Its feedback acts at every control step: a chunk of actions is what that feedback
does on a copy of the simulation, and is executed open-loop.
"""

import dataclasses

import numpy as np
from jaxtyping import Float64

from sim_envs.droid.control import CONTROL_HZ, MAX_STEP, Control
from sim_envs.droid.meeting import FASTEST, Joints
from sim_envs.droid.planning import moves, planned
from sim_envs.droid.robot import DAMPING, FRICTION, STIFFNESS
from sim_envs.droid.sim import ACTION_SIZE, DroidSim
from sim_envs.droid.station import Station
from sim_envs.droid.waypoints import JointWaypoint
from sim_envs.scripted.policy import HORIZON
from sim_envs.world import EpisodeKey

_PATIENCE = 60
"""Control steps after which a waypoint counts as passed."""

_EAGERNESS = 4.0
"""Velocity of a joint per missing radian, 1/s."""

_BRAKE_S = np.array([0.15, 0.15, 0.12, 0.1, 0.0, 0.0, 0.0])
"""Lead (rad) of each joint's target per missing velocity (rad/s); the light joints need none."""

_STOPPED = 0.004
"""The gripper has stopped when it moves less in a control step, as a share of its range."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Progress:
    """How far the expert is.

    Attributes:
        move: Number of the move that is under way.
        path: What is left of it; empty before it is planned.
        waited: Control steps since the last waypoint.
        gripper: Where the gripper was a step ago.
    """

    move: int = 0
    path: tuple[JointWaypoint, ...] = ()
    waited: int = 0
    gripper: float = 0.0


class DroidExpert:
    """Picks, places and stops in the rubric's order. Implements `sim_envs.scripted.policy.ScriptedPolicy`.

    Attributes:
        intended: The actions of the last query.
    """

    def __init__(self, sim: DroidSim) -> None:
        """Bind it to a world that has been reset.

        Raises:
            UsageError: The task asks for more than that.
        """
        self._sim = sim
        self._moves = moves(sim.task)
        self._history: list[_Progress] = [_Progress()]
        self._asked_at = 0.0
        self.intended: Float64[np.ndarray, "horizon action"] = np.empty((0, ACTION_SIZE))

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode; nothing here is random."""
        del key
        self._history, self._asked_at = [_Progress()], self._sim.station.data.time

    def query(self, state: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, "horizon action"]:
        """The next chunk, rehearsed on a copy of the simulation."""
        del state
        now = self._sim.station.data.time
        passed = round((now - self._asked_at) * CONTROL_HZ)
        progress = self._history[min(passed, len(self._history) - 1)]
        twin = self._sim.station.copy()
        self._history, self._asked_at = [progress], now
        actions = []
        for _ in range(HORIZON):
            progress, action = self._act(twin, progress)
            twin.step(action)
            self._history.append(progress)
            actions.append(action)
        self.intended = np.array(actions)
        return self.intended

    def _act(self, station: Station, progress: _Progress) -> tuple[_Progress, Float64[np.ndarray, " 8"]]:
        """One control step of feedback."""
        progress = self._advanced(station, progress)
        if not progress.path:
            return progress, _command(station, station.joints, 0.0)
        goal = progress.path[0]
        progress = dataclasses.replace(progress, waited=progress.waited + 1, gripper=station.gripper)
        return progress, _command(station, goal.joints, goal.grip)

    def _advanced(self, station: Station, progress: _Progress) -> _Progress:
        """Past the waypoints that have been reached, into the next move if there is none left."""
        path, waited = progress.path, progress.waited
        if path and _is_passed(station, progress):
            path, waited = path[1:], 0
            progress = dataclasses.replace(
                progress, path=path, waited=waited, move=progress.move + (not path)
            )
        if not path and progress.move < len(self._moves):
            path = tuple(planned(station, self._moves[progress.move]))
            return dataclasses.replace(progress, path=path, waited=0)
        return progress


def _is_passed(station: Station, progress: _Progress) -> bool:
    goal = progress.path[0]
    if station.data.time < goal.not_before:
        return False
    if progress.waited >= _PATIENCE:
        return True
    if goal.grips:
        return progress.waited > 4 and abs(station.gripper - progress.gripper) < _STOPPED
    return bool(np.abs(goal.joints - station.joints).max() < goal.near)


def _command(station: Station, goal: Joints, grip: float) -> Float64[np.ndarray, " 8"]:
    """The action that moves the arm towards a goal.

    The joints are underdamped, so the lead of the target has a part for the velocity wanted, one for what is
    missing of that velocity, and one that overcomes friction.
    """
    missing = goal - station.joints
    wanted = _EAGERNESS * missing
    wanted *= min(1.0, FASTEST / max(float(np.abs(wanted).max()), 1e-9))
    lead = wanted * np.array(DAMPING) / STIFFNESS + _BRAKE_S * (wanted - station.joint_velocities)
    lead += np.clip(missing / 0.004, -1.0, 1.0) * FRICTION / STIFFNESS
    if station.control is Control.JOINT_POSITION:
        return np.append(station.joints + lead, grip)
    return np.append(np.clip(lead / MAX_STEP, -1.0, 1.0), grip)
