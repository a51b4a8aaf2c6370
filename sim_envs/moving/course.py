"""The course of a thing that moves by itself: smooth in position and velocity, from rest."""

import abc
import dataclasses
import math
from collections.abc import Callable

import numpy as np
from typing_extensions import override

from configs.motion import Drift, Shuttle
from sim_envs.moving.room import Room
from sim_envs.scripted.poses import Vector3

RISE_S = 0.5
"""Seconds in which a thing gets up to its speed, and in which it comes to rest."""

_LONGEST = 0.2
"""How far (m) a drift goes at most: it stays within sight and reach."""

_LEAST = 0.01
"""Where there is less room (m) than this, a thing stays where it is."""

_DIRECTIONS = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course(abc.ABC):
    """Where a thing is at which time, while nothing touches it.

    Attributes:
        way: The horizontal unit vector along which it moves.
    """

    way: Vector3

    def offset(self, seconds: float) -> Vector3:
        """How far (m) it is from where it began, so long after it began."""
        return self.way * self.place(max(seconds, 0.0))

    def velocity(self, seconds: float) -> Vector3:
        """Its velocity then (m/s)."""
        return self.way * self.speed(max(seconds, 0.0))

    @abc.abstractmethod
    def place(self, seconds: float) -> float:
        """How far along the way it is (m)."""

    @abc.abstractmethod
    def speed(self, seconds: float) -> float:
        """How fast it moves along the way (m/s)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Swing(Course):
    """To and fro.

    Attributes:
        amplitude: m.
        period: s.
        phase: Where in its swing it begins, rad.
    """

    amplitude: float
    period: float
    phase: float

    @override
    def place(self, seconds: float) -> float:
        return self.amplitude * (math.sin(self._angle(seconds)) - math.sin(self.phase))

    @override
    def speed(self, seconds: float) -> float:
        rate = 2 * math.pi / self.period
        return self.amplitude * rate * math.cos(self._angle(seconds)) * _pace(seconds)

    def _angle(self, seconds: float) -> float:
        return self.phase + 2 * math.pi / self.period * _eased(seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Straight(Course):
    """From rest to rest.

    Attributes:
        length: m.
        cruise: The speed in between, m/s; it is kept for no time if the line is short.
    """

    length: float
    cruise: float

    @override
    def place(self, seconds: float) -> float:
        return self.cruise * (_eased(seconds) - _eased(seconds - self.length / self.cruise))

    @override
    def speed(self, seconds: float) -> float:
        return self.cruise * (_pace(seconds) - _pace(seconds - self.length / self.cruise))


def draw_course(motion: Shuttle | Drift, room: Room, draws: np.random.Generator) -> Course | None:
    """A course that stays where there is room.

    Its direction is drawn among those that have enough of it. Where none has, the roomiest is taken: then a
    shuttle keeps its period and a drift its speed, over a shorter way.

    Args:
        motion: What kind.
        room: How far the thing can go.
        draws: Decides direction and phase; as many numbers are drawn in any case.

    Returns:
        None if there is hardly any room.
    """
    angles = draws.permutation(_DIRECTIONS) * (2 * math.pi / _DIRECTIONS)
    phase = draws.uniform(0.0, 2 * math.pi)
    ways = [np.array([math.cos(angle), math.sin(angle), 0.0]) for angle in angles]
    match motion:
        case Shuttle():
            return _swing(motion, room, ways, phase)
        case Drift():
            return _line(motion, room, ways)


def _swing(motion: Shuttle, room: Room, ways: list[Vector3], phase: float) -> Course | None:
    wanted = motion.speed * motion.period / math.pi

    def width(way: Vector3) -> float:
        return min(room.along(way, wanted) + room.along(-way, wanted), wanted)

    way = _first_with(wanted, width, ways)
    amplitude = width(way) / 2
    if 2 * amplitude < _LEAST:
        return None
    # Where it begins in its swing is moved as far as the room on both sides asks for.
    behind = amplitude * (1 + math.sin(phase))
    behind = min(max(behind, 2 * amplitude - room.along(way, wanted)), room.along(-way, wanted))
    sine = min(max(behind / amplitude - 1, -1.0), 1.0)
    begins = math.asin(sine) if math.cos(phase) > 0 else math.pi - math.asin(sine)
    return Swing(way=way, amplitude=amplitude, period=motion.period, phase=begins)


def _line(motion: Drift, room: Room, ways: list[Vector3]) -> Course | None:
    way = _first_with(_LONGEST, lambda way: room.along(way, _LONGEST), ways)
    length = room.along(way, _LONGEST)
    if length < _LEAST:
        return None
    return Straight(way=way, length=length, cruise=min(motion.speed, length / RISE_S))


def _first_with(wanted: float, room: Callable[[Vector3], float], ways: list[Vector3]) -> Vector3:
    """The first direction with so much room (m); if there is none, the one with most."""
    rooms = []
    for way in ways:
        rooms.append(room(way))
        if rooms[-1] >= wanted:
            return way
    return ways[int(np.argmax(rooms))]


def _eased(seconds: float) -> float:
    """The time of a clock that starts smoothly, and is late by half of that for ever after (s)."""
    share = seconds / RISE_S
    if share <= 0.0:
        return 0.0
    return RISE_S * (share**3 - share**4 / 2 if share < 1.0 else share - 0.5)


def _pace(seconds: float) -> float:
    """How fast that clock runs: 0 at first, then 1."""
    share = min(max(seconds / RISE_S, 0.0), 1.0)
    return share * share * (3 - 2 * share)
