"""Motion of the object to grasp until it is touched: `none`, `shuttle:SPEED[,PERIOD]` or `drift:SPEED`."""

import dataclasses
import re

from contracts.errors import UsageError, unknown

_FORMS = ("none", "shuttle:SPEED", "shuttle:SPEED,PERIOD", "drift:SPEED")
_BOUNDS = (("speed", 0.1, 30.0, "cm/s"), ("period", 1.0, 60.0, "s"))  # least and greatest value, and unit
_PERIOD = 4.0  # default period, s


@dataclasses.dataclass(frozen=True)
class Static:
    """Nothing moves."""

    def __str__(self) -> str:
        return "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shuttle:
    """Oscillation on a line, sinusoidal."""

    speed: float  # maximum speed, reached in the middle of the line, m/s
    period: float  # time of a whole oscillation, s

    def __str__(self) -> str:
        return f"shuttle:{100 * self.speed:.6g},{self.period:g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drift:
    """Along a line, once."""

    speed: float  # m/s

    def __str__(self) -> str:
        return f"drift:{100 * self.speed:.6g}"


ObjectMotion = Static | Shuttle | Drift


def parse_motion(text: str) -> ObjectMotion:
    """Parse `none`, `shuttle:SPEED[,PERIOD]` or `drift:SPEED`, in cm/s and s.

    Another spelling, or a number out of bounds, is a UsageError.
    """
    if text == "none":
        return Static()
    form = re.fullmatch(r"(?:shuttle:([^,]+)(?:,([^,]+))?|drift:([^,]+))", text)
    try:
        numbers = [float(number) for number in form.groups() if number is not None] if form else []
    except ValueError:
        numbers = []
    if not numbers:
        raise unknown("motion", text, _FORMS, remedy="SPEED is in cm/s, PERIOD in s.")
    for (what, least, most, unit), number in zip(_BOUNDS, numbers, strict=False):
        if not least <= number <= most:
            raise UsageError(f"motion {text!r}: {what} {number:g} {unit}; give {least:g} to {most:g} {unit}")
    speed, period = numbers[0] / 100, (*numbers, _PERIOD)[1]
    return Drift(speed=speed) if text.startswith("drift") else Shuttle(speed=speed, period=period)


def format_motion(motion: ObjectMotion) -> str:
    """A motion in words."""
    match motion:
        case Static():
            return "static"
        case Shuttle(speed=speed, period=period):
            often = "" if period == _PERIOD else f", period {period:g} s"
            return f"oscillating at {100 * speed:g} cm/s{often}"
        case Drift(speed=speed):
            return f"drifting at {100 * speed:g} cm/s"
