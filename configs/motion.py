"""Motion of the object to grasp until it is touched: `none`, `shuttle:SPEED[,PERIOD]` or `drift:SPEED`."""

import dataclasses
from typing import Annotated

from pydantic import BeforeValidator

from configs.errors import UsageError, unknown

NONE = "none"
_FORMS = (NONE, "shuttle:SPEED", "shuttle:SPEED,PERIOD", "drift:SPEED")
_UNITS = "SPEED is in cm/s, PERIOD in s."
_BOUNDS = {"speed": (0.1, 30.0, "cm/s"), "period": (1.0, 60.0, "s")}
"""Least and greatest value, and unit."""
_PERIOD = 4.0
"""Default period, s."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shuttle:
    """Oscillation on a line, sinusoidal.

    Attributes:
        speed: Maximum speed, reached in the middle of the line, m/s.
        period: Time of a whole oscillation, s.
    """

    speed: float
    period: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drift:
    """Along a line, once.

    Attributes:
        speed: Speed, m/s.
    """

    speed: float


def parse_motion(text: str) -> Shuttle | Drift | None:
    """Parse a motion; None if nothing moves.

    Args:
        text: `none`, `shuttle:SPEED[,PERIOD]` (a period of 4 s if none is given) or `drift:SPEED`, in cm/s
            and s.

    Raises:
        UsageError: It is spelt otherwise, or a number is out of bounds.
    """
    kind, _, given = text.partition(":")
    numbers = given.split(",") if given else []
    match kind, numbers:
        case "none", [] if text == NONE:
            return None
        case "shuttle", [speed]:
            return Shuttle(speed=_number(text, "speed", speed) / 100, period=_PERIOD)
        case "shuttle", [speed, period]:
            return Shuttle(speed=_number(text, "speed", speed) / 100, period=_number(text, "period", period))
        case "drift", [speed]:
            return Drift(speed=_number(text, "speed", speed) / 100)
    raise unknown("motion", text, _FORMS, remedy=_UNITS)


def format_motion(text: str) -> str:
    """A motion in words.

    Raises:
        UsageError: As `parse_motion`.
    """
    match parse_motion(text):
        case None:
            return "static"
        case Shuttle(speed=speed, period=period):
            often = "" if period == _PERIOD else f", period {period:g} s"
            return f"oscillating at {100 * speed:g} cm/s{often}"
        case Drift(speed=speed):
            return f"drifting at {100 * speed:g} cm/s"


def _number(text: str, what: str, number: str) -> float:
    least, most, unit = _BOUNDS[what]
    try:
        value = float(number)
    except ValueError:
        raise unknown("motion", text, _FORMS, remedy=_UNITS) from None
    if not least <= value <= most:
        raise UsageError(f"motion {text!r}: {what} {number} {unit}; give {least:g} to {most:g} {unit}")
    return value


def _canonical(text: str) -> str:
    """The canonical spelling of a motion, so that equal motions have equal protocols."""
    match parse_motion(text):
        case None:
            return NONE
        case Shuttle(speed=speed, period=period):
            return f"shuttle:{100 * speed:.6g},{period:g}"
        case Drift(speed=speed):
            return f"drift:{100 * speed:.6g}"


MotionText = Annotated[str, BeforeValidator(lambda value: _canonical(str(value)))]
"""A motion as `parse_motion` reads it, in canonical spelling."""
