"""Counts outcomes of paired episodes: success rates of two runs, and their difference."""

import dataclasses
from collections.abc import Sequence

from eval.metrics.noninferiority import PairCounts
from eval.metrics.statistics import Interval, mcnemar_exact, paired_difference_95, wilson_95
from eval.records.schema import EpisodeResult, Outcome

Pair = tuple[EpisodeResult, EpisodeResult]
"""The same episode in runs A and B."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairTable:
    """Outcomes of the graded pairs.

    Attributes:
        n_episodes: All pairs of episodes, those with an error among them.
        both: Pairs that both runs solved; `only_a`, `only_b` and `neither` likewise.
        n_errors_a: Episodes that ended in an error in A; such pairs are not graded.
        n_errors_b: The same for B.
    """

    n_episodes: int
    both: int
    only_a: int
    only_b: int
    neither: int
    n_errors_a: int
    n_errors_b: int

    @property
    def graded(self) -> int:
        """Pairs in which neither run ended in an error."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def counts(self) -> PairCounts:
        """The counts for a verdict; requires a graded pair."""
        return PairCounts(only_a=self.only_a, only_b=self.only_b, pairs=self.graded)

    @property
    def percent_a(self) -> float | None:
        """A's success rate over the graded pairs."""
        return 100 * (self.both + self.only_a) / self.graded if self.graded else None

    @property
    def percent_b(self) -> float | None:
        """B's success rate over the graded pairs."""
        return 100 * (self.both + self.only_b) / self.graded if self.graded else None

    @property
    def interval_a(self) -> Interval | None:
        """95 % Wilson interval of A's success rate."""
        return wilson_95(self.both + self.only_a, self.graded)

    @property
    def interval_b(self) -> Interval | None:
        """95 % Wilson interval of B's success rate."""
        return wilson_95(self.both + self.only_b, self.graded)

    @property
    def difference(self) -> float | None:
        """B's success rate minus A's, percentage points."""
        return 100 * (self.only_b - self.only_a) / self.graded if self.graded else None

    @property
    def difference_ci95(self) -> Interval | None:
        """Its 95 % paired score interval (Tango), percentage points."""
        interval = paired_difference_95(self.only_a, self.only_b, self.graded)
        return None if interval is None else Interval(low=100 * interval.low, high=100 * interval.high)

    @property
    def mcnemar_p(self) -> float:
        """Exact two-sided p-value of the runs' difference."""
        return mcnemar_exact(self.only_a, self.only_b)


def is_graded(pair: Pair) -> bool:
    """Whether neither episode of a pair ended in an error."""
    return all(episode.outcome is not Outcome.ERROR for episode in pair)


def outcomes_of(pairs: Sequence[Pair]) -> PairTable:
    """Count the outcomes of pairs of episodes."""
    graded = filter(is_graded, pairs)
    solved = [(a.outcome is Outcome.SUCCESS, b.outcome is Outcome.SUCCESS) for a, b in graded]
    return PairTable(
        n_episodes=len(pairs),
        both=solved.count((True, True)),
        only_a=solved.count((True, False)),
        only_b=solved.count((False, True)),
        neither=solved.count((False, False)),
        n_errors_a=sum(a.outcome is Outcome.ERROR for a, _ in pairs),
        n_errors_b=sum(b.outcome is Outcome.ERROR for _, b in pairs),
    )
