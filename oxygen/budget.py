"""How many tokens a frame decodes: as many as was said, or as many as fit before the robot's deadline."""

import dataclasses
import math
from typing import Protocol, runtime_checkable

from configs.errors import UsageError


class DecodeCosts:
    """A running estimate of what a decode step takes, for every size of batch.

    What else a frame's language needs (the forks of newborn requests) is spread over its steps, so that steps
    times cost is the time of the whole. The mean is exponential: a new frame counts a fifth.
    """

    _NEW = 0.2

    def __init__(self) -> None:
        self._step_ms: dict[int, float] = {}

    def step_ms(self, batch: int) -> float | None:
        """Milliseconds of a step; None until one has been measured."""
        return self._step_ms.get(batch)

    def took(self, batch: int, steps: int, milliseconds: float) -> None:
        """Note what `steps` steps took."""
        sample = milliseconds / steps
        before = self._step_ms.get(batch, sample)
        self._step_ms[batch] = before + self._NEW * (sample - before)

    def took_at_most(self, batch: int, steps: int, milliseconds: float) -> None:
        """Note that `steps` steps were over after so long, though nobody was there to see when."""
        known = self._step_ms.get(batch)
        if known is None or milliseconds / steps < known:
            self.took(batch, steps, milliseconds)


@runtime_checkable
class Budget(Protocol):
    """Decides, once the actions of a frame are there, how many decode steps follow."""

    def steps(self, *, batch: int, spent_ms: float, costs: DecodeCosts) -> int:
        """Decode steps, at least 1.

        Args:
            batch: Rows of the batch to be decoded.
            spent_ms: Since the query came in.
            costs: What steps have taken so far.
        """


@dataclasses.dataclass(frozen=True)
class FixedTokens:
    """The same number in every frame."""

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
    """What fits between the actions' end and the deadline, by measured costs.

    Attributes:
        ms: Time from one query to the next, milliseconds.
        reserve: The part of it that is left free, since measured costs are means.
        least: Steps that are decoded in any case, so that every text ends: until a cost has been measured,
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
