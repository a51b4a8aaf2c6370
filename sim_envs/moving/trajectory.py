"""Trajectories of moving objects: smooth in position and velocity, starting from rest."""

import abc
import dataclasses
import math
from collections.abc import Callable

import numpy as np
from typing_extensions import override

from configs.motion import Drift, Shuttle
from sim_envs.moving.free_space import FreeSpace
from sim_envs.scripted.poses import Vector3

RISE_S = 0.5
"""Seconds to accelerate to full speed, and to come to rest."""

_LONGEST = 0.2
"""Longest drift (m): the object stays within sight and reach."""

_MIN = 0.01
"""Minimal free space (m) of an object that moves."""

_DIRECTIONS = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trajectory(abc.ABC):
    """Displacement of an object over time, while nothing touches it.

    Attributes:
        way: Horizontal unit vector of its direction.
    """

    way: Vector3

    def offset(self, seconds: float) -> Vector3:
        """Displacement (m) after a time."""
        return self.way * self.distance(max(seconds, 0.0))

    def velocity(self, seconds: float) -> Vector3:
        """Velocity (m/s) after a time."""
        return self.way * self.speed(max(seconds, 0.0))

    @abc.abstractmethod
    def distance(self, seconds: float) -> float:
        """Distance along the direction (m)."""

    @abc.abstractmethod
    def speed(self, seconds: float) -> float:
        """Speed along the direction (m/s)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuttleTrajectory(Trajectory):
    """Oscillation.

    Attributes:
        amplitude: m.
        period: s.
        phase: Initial phase, rad.
    """

    amplitude: float
    period: float
    phase: float

    @override
    def distance(self, seconds: float) -> float:
        return self.amplitude * (math.sin(self._angle(seconds)) - math.sin(self.phase))

    @override
    def speed(self, seconds: float) -> float:
        rate = 2 * math.pi / self.period
        return self.amplitude * rate * math.cos(self._angle(seconds)) * _pace(seconds)

    def _angle(self, seconds: float) -> float:
        return self.phase + 2 * math.pi / self.period * _eased(seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriftTrajectory(Trajectory):
    """A straight line from rest to rest.

    Attributes:
        length: m.
        cruise: Maximal speed, m/s.
    """

    length: float
    cruise: float

    @override
    def distance(self, seconds: float) -> float:
        return self.cruise * (_eased(seconds) - _eased(seconds - self.length / self.cruise))

    @override
    def speed(self, seconds: float) -> float:
        return self.cruise * (_pace(seconds) - _pace(seconds - self.length / self.cruise))


def sample_trajectory(
    motion: Shuttle | Drift, room: FreeSpace, draws: np.random.Generator
) -> Trajectory | None:
    """Sample a trajectory that stays within free space.

    The direction is sampled among those with enough free space. If there is none, the direction with most is
    taken: a shuttle then keeps its period and a drift its speed, over a shorter distance.

    Args:
        motion: The kind of motion.
        room: Free space around the object.
        draws: Samples direction and phase; always the same number of draws.

    Returns:
        None if there is hardly any free space.
    """
    angles = draws.permutation(_DIRECTIONS) * (2 * math.pi / _DIRECTIONS)
    phase = draws.uniform(0.0, 2 * math.pi)
    ways = [np.array([math.cos(angle), math.sin(angle), 0.0]) for angle in angles]
    match motion:
        case Shuttle():
            return _sample_shuttle(motion, room, ways, phase)
        case Drift():
            return _sample_drift(motion, room, ways)


def _sample_shuttle(motion: Shuttle, room: FreeSpace, ways: list[Vector3], phase: float) -> Trajectory | None:
    wanted = motion.speed * motion.period / math.pi

    def width(way: Vector3) -> float:
        return min(room.along(way, wanted) + room.along(-way, wanted), wanted)

    way = _first_with(wanted, width, ways)
    amplitude = width(way) / 2
    if 2 * amplitude < _MIN:
        return None
    # The initial phase is shifted as far as the free space on both sides requires.
    behind = amplitude * (1 + math.sin(phase))
    behind = min(max(behind, 2 * amplitude - room.along(way, wanted)), room.along(-way, wanted))
    sine = min(max(behind / amplitude - 1, -1.0), 1.0)
    begins = math.asin(sine) if math.cos(phase) > 0 else math.pi - math.asin(sine)
    return ShuttleTrajectory(way=way, amplitude=amplitude, period=motion.period, phase=begins)


def _sample_drift(motion: Drift, room: FreeSpace, ways: list[Vector3]) -> Trajectory | None:
    way = _first_with(_LONGEST, lambda way: room.along(way, _LONGEST), ways)
    length = room.along(way, _LONGEST)
    if length < _MIN:
        return None
    return DriftTrajectory(way=way, length=length, cruise=min(motion.speed, length / RISE_S))


def _first_with(wanted: float, room: Callable[[Vector3], float], ways: list[Vector3]) -> Vector3:
    """The first direction with enough free space (m), else the one with most."""
    rooms = []
    for way in ways:
        rooms.append(room(way))
        if rooms[-1] >= wanted:
            return way
    return ways[int(np.argmax(rooms))]


def _eased(seconds: float) -> float:
    """Time (s) with a smooth start; after the start it lags by half of `RISE_S`."""
    share = seconds / RISE_S
    if share <= 0.0:
        return 0.0
    return RISE_S * (share**3 - share**4 / 2 if share < 1.0 else share - 0.5)


def _pace(seconds: float) -> float:
    """Derivative of `_eased`: from 0 to 1."""
    share = min(max(seconds / RISE_S, 0.0), 1.0)
    return share * share * (3 - 2 * share)
