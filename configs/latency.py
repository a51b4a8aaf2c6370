"""The latency of a query, control steps in it, and the actions executed meanwhile. Imports no library."""

import dataclasses
import math
from collections.abc import Sequence

from configs.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency:
    """Latency of a query in milliseconds since it was issued."""

    actions_ms: float  # until its actions were available
    busy_ms: float  # until the next query could start
    texts_ms: Sequence[float] = ()  # until the last token of each text finished in the query


def steps_in(milliseconds: float, control_hz: float) -> int:
    """`milliseconds` in control steps, rounded up."""
    return max(0, math.ceil(milliseconds / 1e3 * control_hz - 1e-9))  # but for rounding errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionPrefix:
    """The actions of the last chunk that the robot executes until the next chunk is ready."""

    first: int  # index of the action executed at the time of the observation
    delay: int  # expected number of them, including the first

    def __post_init__(self) -> None:
        if self.first < 0 or self.delay < 1:
            raise UsageError(f"action prefix {self}: `first` is 0 or more, and `delay` at least 1")
