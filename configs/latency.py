"""The latency of a query, control steps in it, and the actions executed meanwhile. Imports no library."""

import dataclasses
import math
from collections.abc import Sequence

from configs.errors import UsageError

_ROUNDING = 1e-9  # tolerance of `steps_in` for rounding errors, control steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency:
    """Latency of a query in milliseconds since it was issued.

    Attributes:
        actions_ms: Until its actions were available.
        busy_ms: Until the next query could start.
        texts_ms: Until the last token of each text finished in the query.
    """

    actions_ms: float
    busy_ms: float
    texts_ms: Sequence[float] = ()


def steps_in(milliseconds: float, control_hz: float) -> int:
    """`milliseconds` in control steps, rounded up."""
    return max(0, math.ceil(milliseconds / 1e3 * control_hz - _ROUNDING))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionPrefix:
    """The actions of the last chunk that the robot executes until the next chunk is ready.

    Attributes:
        first: Index of the action executed at the time of the observation.
        delay: Expected number of them, including the first.
    """

    first: int
    delay: int

    def __post_init__(self) -> None:
        if self.first < 0 or self.delay < 1:
            raise UsageError(f"action prefix {self}: `first` is 0 or more, and `delay` at least 1")
