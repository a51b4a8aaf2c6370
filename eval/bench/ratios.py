"""Ratios of two configurations that ran alternately, paired by repetition, with intervals."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from eval.metrics.statistics import Interval

_LEVEL = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio: its median over repetitions, and an interval of that median.

    The interval covers 95 % from six repetitions on, less with fewer (see `_median_95`); None for one.
    """

    value: float
    ci95: Interval | None


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], *, expected: Sequence[float] | None = None
) -> Ratio:
    """The median over repetitions of numerator / denominator, divided by the `expected` ratio if given.

    Drift of the machine is common to both sides of a repetition and cancels. The median and its interval are
    robust to single disturbed repetitions.

    Raises:
        ValueError: There are no repetitions, or the numbers of them differ.
    """
    if not numerators:
        raise ValueError("a ratio of no repetitions")
    by = expected or (1.0,) * len(numerators)
    ratios = np.array([a / b / c for a, b, c in zip(numerators, denominators, by, strict=True)])
    return Ratio(value=float(np.median(ratios)), ci95=_median_95(np.sort(ratios)))


def _median_95(sample: np.ndarray) -> Interval | None:
    """Distribution-free interval of the median of an ascending sample; None for a single number.

    The k-th smallest and the k-th largest number enclose the median with a binomial probability. For 95 % the
    intervals of neighbouring k are interpolated (Hettmansperger and Sheather 1986). For two to five numbers
    the interval is the range of the sample, which covers the median in 50, 75, 88 and 94 % of cases.
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
    median = np.median(sample)  # rounding may put it just outside where numbers are equal
    return Interval(low=float(min(low, median)), high=float(max(high, median)))


def _coverage(k: int, n: int) -> float:
    """Probability that the k-th smallest and the k-th largest of n numbers enclose the median."""
    from scipy.stats import binom

    return float(1 - 2 * binom.cdf(k - 1, n, 0.5))


def decode_growth(decode_ms: Sequence[Mapping[int, float]]) -> Ratio | None:
    """Ratio of a decode step's time, largest batch to smallest; None if there is only one size.

    Args:
        decode_ms: Milliseconds by batch size, one mapping per repetition.
    """
    sizes = sorted(decode_ms[0])
    if len(sizes) < 2:
        return None
    smallest, *_, largest = sizes
    return paired_ratio([times[largest] for times in decode_ms], [times[smallest] for times in decode_ms])
