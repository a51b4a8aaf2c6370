"""Verdicts of a non-inferiority trial: a paired difference against 0 and against a margin set beforehand."""

import dataclasses
import enum
import math
from collections.abc import Sequence

from eval.metrics.statistics import Interval, holm, paired_score, paired_variance

_ONE_SIDED = 0.025
_POWER = 0.8
_MOST_EPISODES = 1_000_000
"""Above this, no number of episodes is reported."""


class Verdict(enum.StrEnum):
    """What can be said of B beside A."""

    SUPERIOR = "superior"
    NON_INFERIOR = "non-inferior"
    INFERIOR = "inferior"
    INCONCLUSIVE = "inconclusive"
    TOO_MANY_ERRORS = "too many errors"
    """No verdict."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairCounts:
    """Pairs of episodes, and those of them in which one run alone succeeded."""

    only_a: int
    only_b: int
    pairs: int

    def __post_init__(self) -> None:
        if min(self.only_a, self.only_b) < 0 or self.pairs < max(1, self.only_a + self.only_b):
            raise ValueError(f"{self.only_a} and {self.only_b} discordant pairs of {self.pairs}")


def verdict_of(interval: Interval, margin: float) -> Verdict:
    """Hold a 95 % interval of B minus A, of which more is better, against 0 and the margin.

    As in the figure for non-inferiority trials of the CONSORT statement (Piaggio et al. 2012, JAMA 308:2594):
    each bound alone is a one-sided test at 2.5 %.

    Args:
        interval: Of the difference.
        margin: What B may lose and still count as non-inferior; in the interval's unit, above 0.
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
    make it wrongly in any suite. A single suite has the verdict of its interval.

    Args:
        counts: One per suite.
        margin: What B may lose, as a share of episodes in (0, 1).
    """
    superior = holm([_p_above(0.0, each) for each in counts])
    non_inferior = holm([_p_above(-margin, each) for each in counts])
    inferior = holm([_p_below(-margin, each) for each in counts])
    return [_first_shown(*p_values) for p_values in zip(superior, non_inferior, inferior, strict=True)]


def _p_above(difference: float, counts: PairCounts) -> float:
    """One-sided p-value of the hypothesis that B minus A is at most `difference`."""
    return _upper_tail(paired_score(difference, counts.only_a, counts.only_b, counts.pairs))


def _p_below(difference: float, counts: PairCounts) -> float:
    """One-sided p-value of the hypothesis that B minus A is at least `difference`."""
    return _upper_tail(-paired_score(difference, counts.only_a, counts.only_b, counts.pairs))


def _upper_tail(score: float) -> float:
    return math.erfc(score / math.sqrt(2)) / 2


def _first_shown(superior: float, non_inferior: float, inferior: float) -> Verdict:
    if superior < _ONE_SIDED:
        return Verdict.SUPERIOR
    if non_inferior < _ONE_SIDED:
        return Verdict.NON_INFERIOR
    return Verdict.INFERIOR if inferior < _ONE_SIDED else Verdict.INCONCLUSIVE


def episodes_needed(counts: PairCounts, margin: float) -> int | None:
    """Episodes that would tell non-inferior from inferior with 80 % power, at one-sided 2.5 %.

    With the observed difference d and margin m, Nam's sample size for the paired score test (Biometrics
    53:1422, 1997): (1.960 √v₀ + 0.842 √v₁)² / (d + m)². v₀ is the variance of one pair's difference in the
    limit of the likelihood at −m, v₁ the observed one: the share of discordant pairs less d². Half a pair is
    added to either discordant count, so that a share of zero is not taken for certain. It is for a new
    comparison of so many episodes in all; the observed difference may be wrong itself.

    Returns:
        None where no number would, since the observed difference is at −m, or so near that it takes more than
        a million.

    Args:
        counts: What was observed.
        margin: What B may lose, as a share of episodes in (0, 1).
    """
    from scipy.stats import norm

    difference = (counts.only_b - counts.only_a) / counts.pairs
    discordant = (counts.only_a + counts.only_b + 1) / (counts.pairs + 1)
    only_a, only_b = (discordant - difference) / 2, (discordant + difference) / 2
    at_margin = paired_variance(-margin, only_a, only_b)
    observed = discordant - difference**2
    root = float(norm.isf(_ONE_SIDED)) * math.sqrt(at_margin) + float(norm.ppf(_POWER)) * math.sqrt(observed)
    distance = abs(difference + margin)
    if root > distance * math.sqrt(_MOST_EPISODES):
        return None
    return math.ceil((root / distance) ** 2)
