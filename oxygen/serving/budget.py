"""Token budget of an engine step: a fixed number, or what fits before a deadline."""

import dataclasses
import math
from typing import TypeAlias

from configs.errors import UsageError

_RESERVE = 0.1


class RunningMean:
    """An exponential moving average."""

    _NEW_WEIGHT = 0.2

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, sample: float) -> None:
        """Add a sample."""
        before = sample if self.value is None else self.value
        self.value = before + self._NEW_WEIGHT * (sample - before)


@dataclasses.dataclass(frozen=True)
class FixedTokens:
    """The same number of tokens per request in every engine step."""

    tokens: int = 5

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UsageError(f"tokens per frame is {self.tokens}; it must be at least 1")

    def steps(self, *, spent_ms: float, step_ms: float | None) -> int:
        """Always the same number."""
        del spent_ms, step_ms
        return self.tokens


@dataclasses.dataclass(frozen=True)
class Deadline:
    """As many decode steps as fit between the actions and the deadline, by measured costs.

    Decode steps are queued while the actions are computed, so their completion is estimated from earlier
    queries. A tenth of the time is left free, since measured costs and times are means.
    """

    ms: float  # time from one query to the next, milliseconds

    def __post_init__(self) -> None:
        if not 0 < self.ms < math.inf:
            raise UsageError(f"the deadline is {self.ms} ms; it must be a number above 0")

    def steps(self, *, spent_ms: float, step_ms: float | None) -> int:
        """Decode steps to queue behind the actions; at least 1, so that every text ends.

        Args:
            spent_ms: Expected time from the query's arrival until its actions are ready.
            step_ms: Measured time of a decode step; None before the first measurement.
        """
        if not step_ms:
            return 1
        left = self.ms * (1 - _RESERVE) - spent_ms
        return max(1, math.floor(left / step_ms))


Budget: TypeAlias = FixedTokens | Deadline
"""Decides how many decode steps are queued behind the actions."""
