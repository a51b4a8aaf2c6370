"""Clocks: how simulated time passes while the policy computes, read and written as `--clock` spells them."""

import dataclasses
import math
from collections.abc import Sequence

from contracts.errors import UsageError, unknown


@dataclasses.dataclass(frozen=True)
class Paused:
    """No time passes, as the literature reports."""

    def __str__(self) -> str:
        return "paused"


@dataclasses.dataclass(frozen=True)
class Fixed:
    """The same latency for every query."""

    actions_ms: float  # milliseconds until the actions are available
    busy_ms: float  # milliseconds until the next query can start

    def __str__(self) -> str:
        times = [self.actions_ms, *([self.busy_ms] if self.busy_ms != self.actions_ms else [])]
        return f"fixed:{','.join(f'{time:.12g}' for time in times)}"


@dataclasses.dataclass(frozen=True)
class Profile:
    """The stage times of a device."""

    name: str  # a preset, or a YAML file

    def __str__(self) -> str:
        return f"profile:{self.name}"


@dataclasses.dataclass(frozen=True)
class Measured:
    """This machine's own times, as they happen."""

    def __str__(self) -> str:
        return "measured"


@dataclasses.dataclass(frozen=True)
class Replay:
    """The latencies that a run recorded."""

    run: str  # its folder

    def __str__(self) -> str:
        return f"replay:{self.run}"


PAUSED, MEASURED = Paused(), Measured()

Clock = Paused | Fixed | Profile | Measured | Replay

FORMER_PROFILES = {
    "rtx4090": "rtx4090-oxygen-2603",
    "jetson-thor": "jetson-thor-oxygen-2603",
}
"""What former versions called profiles: their names now, which say whose code and when."""

FORMS = ("paused", "fixed:A,B", "profile:NAME", "measured", "replay:RUN")


def clock_name(clock: Clock) -> str:
    """A clock as tables and videos name it: a profile's name alone."""
    return clock.name if isinstance(clock, Profile) else str(clock)


def parse_clock(text: str, *, profiles: Sequence[str] = ()) -> Clock:
    """Parse one of `FORMS`; `profiles` are the names to suggest for another one, which is a UsageError."""
    kind, _, rest = text.partition(":")
    match kind:
        case "paused" | "measured" if rest:
            raise UsageError(f"clock {text!r}: {kind} takes no value; write {kind}")
        case "paused":
            return PAUSED
        case "measured":
            return MEASURED
        case "fixed":
            return _parse_fixed(text, rest)
        case "profile":
            return Profile(FORMER_PROFILES.get(rest, rest))
        case "replay":
            return Replay(rest)
    raise unknown("clock", text, (*FORMS, *(f"profile:{name}" for name in profiles)))


def _parse_fixed(text: str, rest: str) -> Fixed:
    try:
        times = [float(time) for time in rest.split(",")]
    except ValueError:
        times = []
    if len(times) not in (1, 2) or not all(0 <= time < math.inf for time in times):
        raise UsageError(
            f"clock {text!r}: write fixed:A,B, milliseconds until the actions and until the next query can "
            "start, such as fixed:100,300"
        )
    if times[-1] < times[0]:
        raise UsageError(
            f"clock {text!r}: the next query cannot start before the actions are available; write "
            f"fixed:{times[1]:g},{times[0]:g}"
        )
    return Fixed(times[0], times[-1])
