"""A scripted expert that picks up, puts down and bars the way of a ball, in either way to command the arm.

It reads the simulation. Its feedback acts at every control step: a chunk of actions is what that feedback
does on a copy of the simulation, and is executed open-loop.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float64

from configs.errors import UsageError
from sim_envs.droid.control import CONTROL_HZ, MAX_STEP, Control
from sim_envs.droid.interception import FASTEST, Joints
from sim_envs.droid.noise import JointNoise
from sim_envs.droid.planning import Carry, Move, has_lost, is_done, moves, planned
from sim_envs.droid.robot import DAMPING, FRICTION, STIFFNESS
from sim_envs.droid.sim import ACTION_SIZE, DroidSim
from sim_envs.droid.station import Station
from sim_envs.droid.waypoints import JointWaypoint
from sim_envs.scripted.noise import checked_level
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
        move: What is under way; None before anything is planned and when all is done.
        path: What is left of it.
        waited: Control steps since the last waypoint.
        gripper: Where the gripper was a step ago.
    """

    move: Move | None = None
    path: tuple[JointWaypoint, ...] = ()
    waited: int = 0
    gripper: float = 0.0


class DroidExpert:
    """Picks, places and stops in the rubric's order, and again what it drops or finds undone.

    Implements `sim_envs.scripted.policy.ScriptedPolicy`.

    Attributes:
        intended: The actions of the last query.
    """

    def __init__(self, sim: DroidSim, *, noise: float = 0.0) -> None:
        """Bind it to a world that has been reset.

        Args:
            sim: The world.
            noise: How much pace and path vary and how often something is dropped, from 0 to 1.

        Raises:
            UsageError: The task asks for more than that, or the noise is not between 0 and 1.
        """
        self._sim = sim
        self._level = checked_level(noise)
        self._noise: JointNoise | None = None
        self._moves = moves(sim.task)
        self._history: list[_Progress] = [_Progress()]
        self._asked_at = 0.0
        self.intended: Float64[np.ndarray, "horizon action"] = np.empty((0, ACTION_SIZE))

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode, or go on from where somebody else has left the world."""
        self._noise = JointNoise(self._level, key) if self._level else None
        self._history, self._asked_at = [_Progress()], self._sim.station.data.time

    def query(self, state: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, "horizon action"]:
        """The next chunk, rehearsed on a copy of the simulation."""
        del state
        now = self._sim.station.data.time
        passed = round((now - self._asked_at) * CONTROL_HZ)
        progress = self._history[min(passed, len(self._history) - 1)]
        twin = self._sim.station.copy()
        self._history, self._asked_at = [progress], now
        meant, done = [], []
        for step in range(HORIZON):
            progress, goal = self._advanced(twin, progress)
            meant.append(_command(twin, goal))
            done.append(self._disturbed(twin, goal, round(now * CONTROL_HZ) + step))
            twin.step(done[-1])
            self._history.append(progress)
        self.intended = np.array(meant)
        return np.array(done)

    def _disturbed(self, station: Station, goal: JointWaypoint, step: int) -> Float64[np.ndarray, " 8"]:
        """The action that is executed, with the episode's noise in it."""
        if self._noise is None:
            return _command(station, goal)
        if self._noise.loosens(step):
            goal = dataclasses.replace(goal, grip=0.0)
        return _command(station, goal, pace=self._noise.pace, drift=self._noise.velocity(step))

    def _advanced(self, station: Station, progress: _Progress) -> tuple[_Progress, JointWaypoint]:
        """Where to go now: past the waypoints that have been reached, into the next move if none is left."""
        path, waited, move = progress.path, progress.waited, progress.move
        if path and _is_passed(station, progress):
            path, waited = path[1:], 0
        if path and isinstance(move, Carry) and has_lost(station, move, path[0]):
            path = ()
        if not path:
            move, waited = next((each for each in self._moves if not is_done(station, each)), None), 0
            path = () if move is None else _planned(station, move, again=progress.move is not None)
        goal = path[0] if path else JointWaypoint(joints=station.joints.copy(), grip=0.0)
        return _Progress(move=move, path=path, waited=waited + 1, gripper=station.gripper), goal


def _planned(station: Station, move: Move, *, again: bool) -> tuple[JointWaypoint, ...]:
    """The way of a move; standing still where something has come to lie out of reach.

    Raises:
        UsageError: It cannot even be begun.
    """
    try:
        return tuple(planned(station, move))
    except UsageError:
        if not again:
            raise
        return (JointWaypoint(joints=station.joints.copy(), grip=0.0, not_before=math.inf),)


def _is_passed(station: Station, progress: _Progress) -> bool:
    goal = progress.path[0]
    if station.data.time < goal.not_before:
        return False
    if progress.waited >= _PATIENCE:
        return True
    if goal.grips:
        return progress.waited > 4 and abs(station.gripper - progress.gripper) < _STOPPED
    return bool(np.abs(goal.joints - station.joints).max() < goal.near)


def _command(
    station: Station, goal: JointWaypoint, *, pace: float = 1.0, drift: Joints | float = 0.0
) -> Float64[np.ndarray, " 8"]:
    """The action that moves the arm towards a goal.

    The joints are underdamped, so the lead of the target has a part for the velocity wanted, one for what is
    missing of that velocity, and one that overcomes friction.

    Args:
        station: Where the arm is.
        goal: Where it is to go.
        pace: Share of the full speed.
        drift: Velocity (rad/s) that disturbs it.
    """
    missing = goal.joints - station.joints
    wanted = _EAGERNESS * missing
    wanted *= min(1.0, pace * FASTEST / max(float(np.abs(wanted).max()), 1e-9))
    wanted += drift
    lead = wanted * np.array(DAMPING) / STIFFNESS + _BRAKE_S * (wanted - station.joint_velocities)
    lead += np.clip(missing / 0.004, -1.0, 1.0) * FRICTION / STIFFNESS
    if station.control is Control.JOINT_POSITION:
        return np.append(station.joints + lead, goal.grip)
    return np.append(np.clip(lead / MAX_STEP, -1.0, 1.0), goal.grip)
