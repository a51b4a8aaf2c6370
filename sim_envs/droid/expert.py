"""A scripted expert that picks, places and blocks a ball, in either control mode.

It reads the simulation state. A feedback controller runs for a chunk's length on a copy of the simulation;
the resulting actions are then executed open-loop. Noise disturbs executed actions, never recorded labels, so
that demonstrations show recovery (after DART, arXiv 1703.09327)."""

import dataclasses
import itertools
import math

import numpy as np
from jaxtyping import Bool, Float64

from configs.droid import CONTROL_HZ, DAMPING, MAX_STEP, STIFFNESS
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from sim_envs.droid.control import ARM_JOINTS, FRICTION, Control, Joints
from sim_envs.droid.planning import FASTEST, Carry, JointWaypoint, Move, block, carry, has_lost, moves
from sim_envs.droid.sim import ACTION_SIZE, DroidSim
from sim_envs.droid.station import Station
from sim_envs.droid.truth import Rubric
from sim_envs.scripted.policy import HORIZON, checked_level

_STEPS = 600  # control steps after which the noise repeats
_SLOWEST = 0.4  # largest reduction of the pace at level 1, as a fraction
_WANDER = 0.1  # standard deviation (rad/s) at level 1 of autoregressive noise of joint velocities
_MEMORY = 0.9  # its autocorrelation
_PUSHED = 0.02  # probability per control step that a push begins, at level 1
_PUSH = 0.35  # standard deviation (rad/s) of a push

_PUSH_STEPS = (4, 12)
_LOOSENED = 0.004  # probability per control step that a closed gripper begins to open, at level 1
_LOOSE_STEPS = 8  # for how long it does


class JointNoise:
    """The disturbances of one episode: a function of level and episode key."""

    def __init__(self, level: float, key: EpisodeKey) -> None:
        """Sample the disturbances; the level is from 0 (none) to 1."""
        draws = np.random.default_rng([key.digest(), round(level * 1e6)])
        self.pace = 1.0 - _SLOWEST * level * float(draws.uniform())  # fraction of full speed
        shocks = draws.normal(0.0, _WANDER * np.sqrt(1 - _MEMORY**2), (_STEPS, len(ARM_JOINTS)))
        wandering = np.array([*itertools.accumulate(shocks, lambda last, shock: shock + _MEMORY * last)])
        # A constant velocity during each push.
        pushed = _begun(draws, _PUSHED * level, steps=_PUSH_STEPS)
        first = np.flatnonzero(pushed & ~np.append(False, pushed[:-1]))
        number = np.searchsorted(first, np.arange(_STEPS), side="right")
        directions = draws.normal(0.0, _PUSH, (len(first) + 1, len(ARM_JOINTS)))
        self._velocities = level * wandering + np.where(pushed[:, None], directions[number], 0.0)
        self._loose = _begun(draws, _LOOSENED * level, steps=(_LOOSE_STEPS, _LOOSE_STEPS))

    def at(self, step: int) -> tuple[Float64[np.ndarray, " 7"], bool]:
        """Disturbance of the joint velocities (rad/s), and whether a closed gripper is opened, in a step."""
        return self._velocities[step % _STEPS], bool(self._loose[step % _STEPS])


def _begun(
    draws: np.random.Generator, probability: float, *, steps: tuple[int, int]
) -> Bool[np.ndarray, " step"]:
    """Control steps covered by events with a start probability per step and a range of durations."""
    under_way = np.zeros(_STEPS, bool)
    begins, lengths = draws.uniform(size=_STEPS) < probability, draws.integers(*steps, _STEPS, endpoint=True)
    for step in np.flatnonzero(begins):
        under_way[step : step + lengths[step]] = True
    return under_way


_PATIENCE = 60  # control steps after which a waypoint counts as passed
_EAGERNESS = 4.0  # proportional gain from joint error to velocity, 1/s
_LEAD_S = 1 / _EAGERNESS  # time by which the joints lag behind a moving goal, s
_STOPPED = 0.004  # the gripper has stopped if it moves less than this fraction of its range in a control step


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Progress:
    move: Move | None = None  # the current move; None before the first plan and when all are done
    path: tuple[JointWaypoint, ...] = ()  # remaining waypoints
    waited: int = 0  # control steps since the last waypoint
    gripper: float = 0.0  # the gripper's position one step ago


class DroidExpert:
    """Picks, places and blocks in the rubric's order, and repeats moves that were dropped or undone.

    Implements `sim_envs.scripted.policy.ScriptedPolicy`.
    """

    def __init__(self, sim: DroidSim, *, noise: float = 0.0) -> None:
        """Bind it to a world; noise from 0 to 1 varies pace and path, and drops objects.

        A UsageError if it cannot do the task, or the noise is not between 0 and 1.
        """
        self._sim = sim
        self._level = checked_level(noise)
        self._noise: JointNoise | None = None
        self._moves = moves(sim.task)
        self._history: list[_Progress] = [_Progress()]
        self._asked_at = 0.0
        self.intended: Float64[np.ndarray, "horizon action"] = np.empty((0, ACTION_SIZE))

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode, or continue from the world's current state."""
        self._noise = JointNoise(self._level, key) if self._level else None
        self._history = [_Progress()]
        self._asked_at = self._sim.station.data.time

    def query(self, state: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, "horizon action"]:
        """The next action chunk, simulated on a copy of the world."""
        del state
        station = self._sim.station
        now = station.data.time
        passed = min(round((now - self._asked_at) * CONTROL_HZ), len(self._history) - 1)
        self._asked_at, self._history = now, [self._history[passed]]
        twin, meant, done = station.copy(), [], []
        for step in range(HORIZON):
            progress, goal = self._advanced(twin, self._history[-1])
            self._history.append(progress)
            meant.append(_command(twin, goal))
            done.append(meant[-1])
            if self._noise is not None:
                drift, loosens = self._noise.at(round(now * CONTROL_HZ) + step)
                goal = dataclasses.replace(goal, grip=0.0) if loosens else goal
                done[-1] = _command(twin, goal, pace=self._noise.pace, drift=drift)
            twin.step(done[-1])
        self.intended = np.array(meant)
        return np.array(done)

    def _advanced(self, station: Station, progress: _Progress) -> tuple[_Progress, JointWaypoint]:
        """Advance past reached waypoints, and plan the next move if none is left.

        A UsageError if an episode's first move is impossible.
        """
        path, waited, move = progress.path, progress.waited, progress.move
        if path and _is_passed(station, progress):
            path, waited = path[1:], 0
        if path and isinstance(move, Carry) and has_lost(station, move, path[0]):
            path = ()
        if not path:
            rubric, waited = Rubric(station), 0
            ahead = (each for each in self._moves if not (isinstance(each, Carry) and rubric.is_placed(each)))
            move = next(ahead, None)  # blocking is never done
            try:
                if move is not None:
                    path = tuple(carry(station, move) if isinstance(move, Carry) else block(station, move))
            except UsageError:  # an object has moved out of reach: hold still
                if not station.has_begun:
                    raise
                path = (JointWaypoint(joints=station.joints.copy(), grip=0.0, not_before=math.inf),)
        still = JointWaypoint(joints=station.joints.copy(), grip=0.0)
        goal = path[0].after(station, _LEAD_S) if path else still
        return _Progress(move=move, path=path, waited=waited + 1, gripper=station.gripper), goal


def _is_passed(station: Station, progress: _Progress) -> bool:
    goal = progress.path[0].after(station, 0.0)
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
    """The action that moves the arm towards a goal, at a fraction of full speed, plus a drift (rad/s).

    The target's lead is a sum of terms for the desired velocity and for friction. It depends on the joints'
    positions, which are observed, and not on their velocities: a policy could not learn that.
    """
    missing = goal.joints - station.joints
    wanted = _EAGERNESS * missing
    wanted *= min(1.0, pace * FASTEST / max(float(np.abs(wanted).max()), 1e-9))
    wanted += drift
    lead = wanted * np.array(DAMPING) / STIFFNESS
    lead += np.clip(missing / 0.004, -1.0, 1.0) * FRICTION / STIFFNESS
    if station.control is Control.JOINT_POSITION:
        return np.append(station.joints + lead, goal.grip)
    return np.append(np.clip(lead / MAX_STEP, -1.0, 1.0), goal.grip)
