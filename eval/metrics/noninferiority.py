"""Verdicts of a non-inferiority trial: a paired difference against 0 and against a margin set beforehand."""

import dataclasses
import enum
import math
import statistics
from collections.abc import Sequence

from eval.metrics.statistics import Interval, holm, paired_difference_95, paired_score, paired_variance

_ONE_SIDED = 0.025
_POWER = 0.8
_MAX_EPISODES = 1_000_000  # above this, no number of episodes is reported


class Verdict(enum.StrEnum):
    """The verdict on B, compared with A."""

    SUPERIOR = "superior"
    NON_INFERIOR = "non-inferior"
    INFERIOR = "inferior"
    INCONCLUSIVE = "inconclusive"
    TOO_MANY_ERRORS = "too many errors"
    """No verdict."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairCounts:
    """Pairs that only one run solved, and all pairs; effective numbers where episodes are clustered."""

    only_a: float
    only_b: float
    pairs: float

    @property
    def difference(self) -> float:
        """B's success rate minus A's, in [-1, 1]."""
        return (self.only_b - self.only_a) / self.pairs

    @property
    def interval(self) -> Interval | None:
        """Its 95 % score interval (Tango)."""
        return paired_difference_95(self.only_a, self.only_b, self.pairs)

    def p_value(self, *, above: float) -> float:
        """One-sided p-value of the null hypothesis that B minus A is at most `above`."""
        score = paired_score(above, self.only_a, self.only_b, self.pairs)
        return math.erfc(score / math.sqrt(2)) / 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoRates:
    """Successes and episodes of two unpaired runs; effective numbers where episodes are clustered.

    The interval and its test are Agresti and Caffo's (The American Statistician 54:280, 2000): normal, with a
    success and a failure more in either run.
    """

    solved_a: float
    of_a: float
    solved_b: float
    of_b: float

    @property
    def difference(self) -> float:
        """B's success rate minus A's, in [-1, 1]."""
        return self.solved_b / self.of_b - self.solved_a / self.of_a

    @property
    def interval(self) -> Interval | None:
        """Its 95 % interval."""
        middle, error = self._normal
        half = statistics.NormalDist().inv_cdf(1 - _ONE_SIDED) * error
        return Interval(low=max(-1.0, middle - half), high=min(1.0, middle + half))

    def p_value(self, *, above: float) -> float:
        """One-sided p-value of the null hypothesis that B minus A is at most `above`."""
        middle, error = self._normal
        return math.erfc((middle - above) / error / math.sqrt(2)) / 2

    @property
    def _normal(self) -> tuple[float, float]:
        a, b = (self.solved_a + 1) / (self.of_a + 2), (self.solved_b + 1) / (self.of_b + 2)
        return b - a, math.sqrt(a * (1 - a) / (self.of_a + 2) + b * (1 - b) / (self.of_b + 2))


Counts = PairCounts | TwoRates
"""What a verdict is of."""


def verdict_of(interval: Interval, margin: float) -> Verdict:
    """Compare a 95 % interval of B minus A, where more is better, with 0 and the margin.

    As in the figure for non-inferiority trials of the CONSORT statement (Piaggio et al. 2012, JAMA 308:2594):
    each bound alone is a one-sided test at 2.5 %. The margin is above 0, in the interval's unit.
    """
    if interval.low > 0:
        return Verdict.SUPERIOR
    if interval.low > -margin:
        return Verdict.NON_INFERIOR
    if interval.high < -margin:
        return Verdict.INFERIOR
    return Verdict.INCONCLUSIVE


def corrected_verdicts(counts: Sequence[Counts], margin: float) -> list[Verdict]:
    """The verdicts of several suites, corrected for their number (Holm 1979).

    Each claim (superior, non-inferior, inferior) is a one-sided test in every suite, the dual of its
    interval. The p-values of one claim are corrected together, so that at most 2.5 % of comparisons
    make it wrongly in any suite. A single suite has the verdict of its interval. The margin is a fraction of
    the episodes in (0, 1).
    """
    claims = {
        Verdict.SUPERIOR: holm([each.p_value(above=0.0) for each in counts]),
        Verdict.NON_INFERIOR: holm([each.p_value(above=-margin) for each in counts]),
        Verdict.INFERIOR: holm([1 - each.p_value(above=-margin) for each in counts]),
    }
    return [
        next(
            (claim for claim, p_values in claims.items() if p_values[place] < _ONE_SIDED),
            Verdict.INCONCLUSIVE,
        )
        for place in range(len(counts))
    ]


def episodes_needed(counts: Counts, margin: float) -> int | None:
    """Episodes that would tell non-inferior from inferior with 80 % power, at one-sided 2.5 %.

    With the observed difference d and margin m, Nam's sample size for the paired score test (Biometrics
    53:1422, 1997): (1.960 √v₀ + 0.842 √v₁)² / (d + m)². v₀ is the variance of one pair's difference in the
    limit of the likelihood at −m, v₁ the observed one: the fraction of discordant pairs less d². Half a pair
    is added to either discordant count, so that none observed does not mean none possible. It is the size of
    a new comparison, and assumes that the observed difference is the true one. Without pairs, it is the
    number in either run by the variances of both rates. The margin is a fraction of the episodes in (0, 1).
    None if the observed difference is so near −m that it takes more than a million.
    """
    normal, difference = statistics.NormalDist(), counts.difference
    alpha, beta = -normal.inv_cdf(_ONE_SIDED), normal.inv_cdf(_POWER)
    if isinstance(counts, TwoRates):
        rates = (counts.solved_a + 1) / (counts.of_a + 2), (counts.solved_b + 1) / (counts.of_b + 2)
        return _squared((alpha + beta) * math.sqrt(sum(p * (1 - p) for p in rates)), difference + margin)
    discordant = (counts.only_a + counts.only_b + 1) / (counts.pairs + 1)
    only_a, only_b = (discordant - difference) / 2, (discordant + difference) / 2
    at_margin = paired_variance(-margin, only_a, only_b)
    observed = discordant - difference**2
    return _squared(alpha * math.sqrt(at_margin) + beta * math.sqrt(observed), difference + margin)


def _squared(root: float, distance: float) -> int | None:
    if root > abs(distance) * math.sqrt(_MAX_EPISODES):
        return None
    return math.ceil((root / distance) ** 2)


ERROR_BUDGET = 2.0
"""Percent of a run's episodes: by how much counting errors as failures could lower the success rate."""


def exceeds(n_errors: int, n_episodes: int) -> bool:
    """Whether more than `ERROR_BUDGET` percent of the episodes ended in an error."""
    return 100 * n_errors > ERROR_BUDGET * n_episodes
