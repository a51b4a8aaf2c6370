"""Verdicts of a non-inferiority trial: a paired difference against 0 and against a margin set beforehand."""

import dataclasses
import enum
import math
import statistics
from collections.abc import Sequence

from eval.metrics.statistics import Interval, holm, paired_score, paired_variance

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
    """Numbers of pairs, or effective ones: discordant ones by the successful run, and all."""

    only_a: float
    only_b: float
    pairs: float


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


def corrected_verdicts(counts: Sequence[PairCounts], margin: float) -> list[Verdict]:
    """The verdicts of several suites, corrected for their number (Holm 1979).

    Each claim (superior, non-inferior, inferior) is a one-sided score test in every suite, the dual of
    Tango's interval. The p-values of one claim are corrected together, so that at most 2.5 % of comparisons
    make it wrongly in any suite. A single suite has the verdict of its interval. The margin is a fraction of
    the episodes in (0, 1).
    """
    claims = {
        Verdict.SUPERIOR: holm([_p_value(each, above=0.0) for each in counts]),
        Verdict.NON_INFERIOR: holm([_p_value(each, above=-margin) for each in counts]),
        Verdict.INFERIOR: holm([1 - _p_value(each, above=-margin) for each in counts]),
    }
    return [
        next(
            (claim for claim, p_values in claims.items() if p_values[place] < _ONE_SIDED),
            Verdict.INCONCLUSIVE,
        )
        for place in range(len(counts))
    ]


def _p_value(counts: PairCounts, *, above: float) -> float:
    """One-sided p-value of the null hypothesis that B minus A is at most `above`."""
    score = paired_score(above, counts.only_a, counts.only_b, counts.pairs)
    return math.erfc(score / math.sqrt(2)) / 2


def episodes_needed(counts: PairCounts, margin: float) -> int | None:
    """Episodes that would tell non-inferior from inferior with 80 % power, at one-sided 2.5 %.

    With the observed difference d and margin m, Nam's sample size for the paired score test (Biometrics
    53:1422, 1997): (1.960 √v₀ + 0.842 √v₁)² / (d + m)². v₀ is the variance of one pair's difference in the
    limit of the likelihood at −m, v₁ the observed one: the fraction of discordant pairs less d². Half a pair
    is added to either discordant count, so that none observed does not mean none possible. It is the size of
    a new comparison, and assumes that the observed difference is the true one. The margin is a fraction of
    the episodes in (0, 1). None if the observed difference is so near −m that it takes more than a million.
    """
    normal, difference = statistics.NormalDist(), (counts.only_b - counts.only_a) / counts.pairs
    discordant = (counts.only_a + counts.only_b + 1) / (counts.pairs + 1)
    only_a, only_b = (discordant - difference) / 2, (discordant + difference) / 2
    at_margin = paired_variance(-margin, only_a, only_b)
    observed = discordant - difference**2
    root = -normal.inv_cdf(_ONE_SIDED) * math.sqrt(at_margin) + normal.inv_cdf(_POWER) * math.sqrt(observed)
    distance = abs(difference + margin)
    if root > distance * math.sqrt(_MAX_EPISODES):
        return None
    return math.ceil((root / distance) ** 2)


ERROR_BUDGET = 2.0
"""Percent of a run's episodes: by how much counting errors as failures could lower the success rate."""


def exceeds(n_errors: int, n_episodes: int, *, budget: float = ERROR_BUDGET) -> bool:
    """Whether more than `budget` percent of the episodes ended in an error."""
    return 100 * n_errors > budget * n_episodes
