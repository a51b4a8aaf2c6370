"""Ratios of two modes that were run in turns: paired by repetition, with two kinds of interval."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from eval.metrics.statistics import Interval
from oxygen.typing import Float64

_LEVEL = 0.95
_RESAMPLES = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio and its intervals, which are None where one repetition is all there is.

    Attributes:
        value: The median over repetitions.
        ci95: By the order of the repetitions, which keeps its 95 % from six of them on.
        bootstrap95: By drawing the repetitions anew. Of six and more it holds the truth in 91 to 94 % of
            cases; of fewer, it is as wide as the other one and as little to be relied on.
    """

    value: float
    ci95: Interval | None
    bootstrap95: Interval | None


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], *, expected: Sequence[float] | None = None
) -> Ratio:
    """The median over repetitions of numerator by denominator, and by what was `expected` of it if given.

    The machine's drift is common to both sides of a repetition, so it cancels before anything is averaged;
    the median forgives a repetition that was disturbed, and so does its interval.

    Raises:
        ValueError: No repetitions, or not as many on each side.
    """
    if not numerators:
        raise ValueError("a ratio of no repetitions")
    by = expected or (1.0,) * len(numerators)
    ratios = np.array([a / b / c for a, b, c in zip(numerators, denominators, by, strict=True)])
    return Ratio(
        value=float(np.median(ratios)),
        ci95=_median_95(np.sort(ratios)),
        bootstrap95=_bootstrap_95(ratios),
    )


def _bootstrap_95(ratios: Float64[np.ndarray, " repetition"]) -> Interval | None:
    """Percentiles of the median over repetitions drawn anew, always the same draws; None of a single one."""
    if len(ratios) < 2:
        return None
    from scipy.stats import bootstrap

    found = bootstrap(
        (ratios,), np.median, n_resamples=_RESAMPLES, method="percentile", rng=np.random.default_rng(0)
    )
    low, high = found.confidence_interval
    return Interval(low=float(low), high=float(high))


def _median_95(sample: np.ndarray) -> Interval | None:
    """Interval of the median, of an ascending sample; None of a single number.

    Between two of the sample's own numbers, the k-th from either end, lies the median with a probability that
    the binomial distribution tells, whatever the sample was drawn from. For 95 % the neighbouring k are
    interpolated (Hettmansperger and Sheather 1986). Two to five numbers cannot reach that: their interval
    goes from the least to the greatest, and holds the median with 50, 75, 88 and 94 %.
    """
    if len(sample) < 2:
        return None
    inner = next(k for k in range(1, len(sample)) if _coverage(k, len(sample)) < _LEVEL)
    if inner == 1:
        return Interval(low=float(sample[0]), high=float(sample[-1]))
    outer, n = inner - 1, len(sample)
    wide, narrow = _coverage(outer, n), _coverage(inner, n)
    part = (wide - _LEVEL) / (wide - narrow)
    inwards = (n - outer) * part / (outer + (n - 2 * outer) * part)
    low = sample[outer - 1] + inwards * (sample[outer] - sample[outer - 1])
    high = sample[-outer] - inwards * (sample[-outer] - sample[-outer - 1])
    median = np.median(sample)  # inside, but for what rounding does to equal numbers
    return Interval(low=float(min(low, median)), high=float(max(high, median)))


def _coverage(k: int, n: int) -> float:
    """How often the median is between the k-th least and the k-th greatest of n numbers."""
    from scipy.stats import binom

    return float(1 - 2 * binom.cdf(k - 1, n, 0.5))


def decode_growth(decode_ms: Sequence[Mapping[int, float]]) -> Ratio | None:
    """A decode step of the largest batch by one of the smallest, paired; None where there is but one size.

    Args:
        decode_ms: By size of batch, one for each repetition.
    """
    sizes = sorted(decode_ms[0])
    if len(sizes) < 2:
        return None
    least, *_, most = sizes
    return paired_ratio([times[most] for times in decode_ms], [times[least] for times in decode_ms])
