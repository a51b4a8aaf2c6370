"""How many tokens an engine step decodes: a fixed number, or as many as fit before a deadline."""

import dataclasses
import math
from collections import defaultdict
from typing import Protocol, runtime_checkable

from configs.errors import UsageError


class RunningMean:
    """An exponential mean: a new sample counts a fifth."""

    _NEW = 0.2

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, sample: float) -> None:
        """Take in one more sample."""
        before = sample if self.value is None else self.value
        self.value = before + self._NEW * (sample - before)


class DecodeCosts:
    """A running estimate of what a decode step takes, for every size of batch.

    The forks of an engine step are spread over its decode steps, so that steps times cost is the whole time.
    """

    def __init__(self) -> None:
        self._step_ms: defaultdict[int, RunningMean] = defaultdict(RunningMean)

    def step_ms(self, batch: int) -> float | None:
        """Milliseconds of a step; None until one has been measured."""
        return self._step_ms[batch].value

    def took(self, batch: int, steps: int, milliseconds: float) -> None:
        """Note what `steps` steps took."""
        self._step_ms[batch].add(milliseconds / steps)


@runtime_checkable
class Budget(Protocol):
    """Decides, before the actions are there, how many decode steps are queued behind them."""

    def steps(self, *, batch: int, spent_ms: float, costs: DecodeCosts) -> int:
        """Decode steps, at least 1.

        Args:
            batch: Rows of the batch to be decoded.
            spent_ms: From the query until its actions are there, as far as can be told beforehand.
            costs: What steps have taken so far.
        """


@dataclasses.dataclass(frozen=True)
class FixedTokens:
    """The same number in every engine step."""

    tokens: int = 5

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UsageError(f"tokens per frame is {self.tokens}; it must be at least 1")

    def steps(self, *, batch: int, spent_ms: float, costs: DecodeCosts) -> int:
        """See `Budget`."""
        del batch, spent_ms, costs
        return self.tokens


@dataclasses.dataclass(frozen=True)
class Deadline:
    """What fits between the actions and the deadline, by measured costs.

    When the actions will be there is estimated from earlier queries, since decode steps are queued behind
    them while they are computed.

    Attributes:
        ms: Time from one query to the next, milliseconds.
        reserve: The part of it that is left free, since measured costs and times are means.
        least: Steps that are decoded in any case, so that every text ends: before a cost has been measured,
            and when nothing fits.
    """

    ms: float
    _: dataclasses.KW_ONLY
    reserve: float = 0.1
    least: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.ms < math.inf:
            raise UsageError(f"the deadline is {self.ms} ms; it must be a number above 0")
        if not 0 <= self.reserve < 1:
            raise UsageError(f"the deadline's reserve is {self.reserve}; it must be from 0 to below 1")
        if self.least < 1:
            raise UsageError(f"the deadline's least is {self.least} steps; it must be at least 1")

    def steps(self, *, batch: int, spent_ms: float, costs: DecodeCosts) -> int:
        """See `Budget`."""
        step_ms = costs.step_ms(batch)
        if not step_ms:
            return self.least
        left = self.ms * (1 - self.reserve) - spent_ms
        return max(self.least, math.floor(left / step_ms))
