"""Statistics of reports: intervals for rates and their differences, tests, latency quantiles."""

import dataclasses
import math
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from contracts.latency import Quantiles

if TYPE_CHECKING:  # the benchmark reads this on machines without it
    from jaxtyping import Float64

_Z_95 = statistics.NormalDist().inv_cdf(0.975)  # SciPy's statistics take a second to import
_RESAMPLES = 2000
_AT_ONCE = 100  # resamples in memory: with the 4500 episodes of libero_90, a few megabytes
_MIN_CLUSTERS = 6  # of fewer a bootstrap covers 94 % at most, since it never leaves the range of the values
_NO_WIDTH = 1e-9  # width below which an interval is due to rounding alone


class Interval(NamedTuple):
    """A confidence interval, in the unit of its values; in JSON a list of both ends."""

    low: float
    high: float


def scaled(interval: Interval | None, scale: float) -> Interval | None:
    """The interval in another unit, such as percent."""
    return None if interval is None else Interval(low=scale * interval.low, high=scale * interval.high)


def wilson_95(successes: float, trials: float) -> Interval | None:
    """95 % Wilson score interval of a success rate, in [0, 1]; None without trials.

    It keeps its coverage near 0 % and 100 % and with few trials, unlike the normal approximation (Wilson
    1927; Brown, Cai and DasGupta 2001).
    """
    if trials == 0:
        return None
    rate, weight = successes / trials, _Z_95**2 / trials
    centre = (rate + weight / 2) / (1 + weight)
    half = math.sqrt(weight * (rate * (1 - rate) + weight / 4)) / (1 + weight)
    return Interval(
        low=0.0 if successes == 0 else centre - half, high=1.0 if successes == trials else centre + half
    )


def independent_share(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """The effective number of values over their number, 1 if each is a cluster of its own.

    Values within a cluster, such as the outcomes of one initial state with several seeds, are not
    independent. The variance of their mean exceeds that of independent values by the design effect, estimated
    between clusters, by which counts are divided before an interval for independent ones is formed (Rao and
    Scott, Biometrics 48:577, 1992). It is 1 at least; where all values agree nothing estimates it, and a
    cluster counts as one value.
    """
    labels = list(dict.fromkeys(clusters))
    if len(labels) == len(values):
        return 1.0
    off = np.asarray(values, np.float64) - np.mean(values)
    squares = float(off @ off)
    if squares <= _NO_WIDTH or len(labels) == 1:
        return len(labels) / len(values)
    between = len(labels) / (len(labels) - 1) * float((_summed(clusters, off)[0] ** 2).sum())
    return min(1.0, squares / between) if between else 1.0


def rate_95(successes: Sequence[bool], clusters: Sequence[Hashable]) -> Interval | None:
    """95 % Wilson interval of the rate of an effective number of successes (see `independent_share`)."""
    share = independent_share(successes, clusters) if successes else 1.0
    return wilson_95(share * sum(successes), share * len(successes))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rate:
    """A success rate with its 95 % Wilson interval over initial states, percent."""

    hits: int
    of: int
    percent: float
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        """The interval alone."""
        return Interval(low=self.low, high=self.high)


def success_rate(successes: Sequence[bool], states: Sequence[Hashable]) -> Rate | None:
    """The success rate of episodes of these initial states; None without one."""
    interval = scaled(rate_95(successes, states), 100)
    if interval is None:
        return None
    hits, of = sum(successes), len(successes)
    return Rate(hits=hits, of=of, percent=100 * hits / of, low=interval.low, high=interval.high)


def _summed(clusters: Sequence[Hashable], *columns: np.ndarray) -> list[np.ndarray]:
    """The columns with one number per cluster, in the order of their first values."""
    numbers = {label: number for number, label in enumerate(dict.fromkeys(clusters))}
    places = [numbers[label] for label in clusters]
    return [np.bincount(places, column, len(numbers)) for column in columns]


def cluster_bootstrap_95(
    statistic: Callable[..., np.ndarray],
    *columns: "Float64[np.ndarray, ' value']",
    clusters: Sequence[Hashable] | None = None,
    method: Literal["BCa", "percentile"] = "BCa",
) -> Interval | None:
    """95 % bootstrap interval of a statistic over clusters; None for fewer than six, or if all agree.

    Whole clusters are resampled, with all their columns, since values within a cluster are not independent
    (Davison and Hinkley 1997, 3.8). The seed is fixed. The interval is bias-corrected and accelerated (BCa;
    Efron 1987), or of percentiles where that is undefined. With few clusters both are too narrow, so the
    nominal level is raised by the ratio of Student's t to the normal (Hesterberg 2015, The American
    Statistician 69:371).

    Args:
        statistic: Maps columns to a number, along an `axis`; a function of their sums.
        columns: Numbers whose sums over clusters are resampled.
        clusters: The cluster of each; None if each is one of its own.
        method: `percentile` for means of symmetric values, where BCa only adds noise.
    """
    if clusters is not None:
        columns = tuple(_summed(clusters, *columns))
    if len(columns[0]) < _MIN_CLUSTERS:
        return None
    from scipy.stats import DegenerateDataWarning, bootstrap, norm, t

    count = len(columns[0])
    wider = math.sqrt(count / (count - 1)) * t.ppf(0.975, count - 1)
    level = min(1 - 2 * float(norm.sf(wider)), 1 - 1 / _RESAMPLES)  # at which it covers 95 %
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", DegenerateDataWarning)
        found = bootstrap(
            columns,
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=_RESAMPLES,
            batch=_AT_ONCE,
            method=method,
            confidence_level=level,
            rng=np.random.default_rng(0),
        )
    ends = np.array(found.confidence_interval)
    if not np.isfinite(ends).all():
        ends = np.quantile(found.bootstrap_distribution, [(1 - level) / 2, (1 + level) / 2])
    low, high = ends.tolist()
    return Interval(low=low, high=high) if high - low > _NO_WIDTH else None


def mean_95(values: "Sequence[float] | np.ndarray", clusters: Sequence[Hashable]) -> Interval | None:
    """95 % bootstrap interval of a mean over clusters; None for fewer than six, or if all agree."""
    columns = np.asarray(values, np.float64), np.ones(len(values))
    return cluster_bootstrap_95(ratio_of_sums, *columns, clusters=clusters, method="percentile")


def ratio_of_sums(part: np.ndarray, whole: np.ndarray, axis: int = -1) -> np.ndarray:
    """A pooled rate, for `cluster_bootstrap_95`."""
    return part.sum(axis=axis) / whole.sum(axis=axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanDifference:
    """Means of paired values, and their difference."""

    a: float  # mean in A
    b: float  # mean in B
    difference: float  # B minus A
    ci95: Interval | None  # its 95 % bootstrap interval over pairs; None if undefined
    n_pairs: int  # pairs of episodes


def mean_difference(
    pairs: Sequence[tuple[float, float]], clusters: Sequence[Hashable]
) -> MeanDifference | None:
    """The means over pairs (A, B) and their difference; None without pairs.

    If the differences of at least six clusters all agree, the interval has no width.
    """
    if not pairs:
        return None
    a, b = np.array(pairs, np.float64).T
    difference = float((b - a).mean())
    return MeanDifference(
        a=float(a.mean()),
        b=float(b.mean()),
        difference=difference,
        ci95=mean_95(b - a, clusters) or agreed(difference, clusters),
        n_pairs=len(pairs),
    )


def agreed(value: float, clusters: Sequence[Hashable]) -> Interval | None:
    """The interval of equal values, of width 0; None for fewer than six clusters.

    The median then has that value with 97 % confidence.
    """
    return Interval(low=value, high=value) if len(set(clusters)) >= _MIN_CLUSTERS else None


def mcnemar_exact(differences: Iterable[int]) -> float:
    """Two-sided exact McNemar p-value, from B's successes minus A's per cluster; 1 if they sum to 0.

    It is the share of all choices of their signs, which are alike if the runs are, whose sum is as far from 0
    (Fisher's randomization test, The Design of Experiments, 1935). Without clusters of several pairs, it is
    McNemar's of the pairs in which A or B alone succeeded.
    """
    signed = [each for each in differences if each]
    if not sum(signed):
        return 1.0
    from scipy.stats import binom, binomtest

    sizes = Counter(map(abs, signed))
    if sizes.keys() == {1}:
        return float(binomtest(signed.count(-1), len(signed)).pvalue)
    chances = np.ones(1)  # of the sum of those with a positive sign
    for size, count in sizes.items():
        spread = np.zeros(size * count + 1)
        spread[::size] = binom.pmf(np.arange(count + 1), count, 0.5)
        chances = np.convolve(chances, spread)
    far = np.abs(2 * np.arange(len(chances)) - (len(chances) - 1)) >= abs(sum(signed))
    return min(1.0, float(chances[far].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests, corrected for their number (Holm 1979), in the same order."""
    corrected = [0.0] * len(p_values)
    floor = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = floor
    return corrected


def paired_difference_95(only_a: float, only_b: float, pairs: float) -> Interval | None:
    """95 % score interval of B's success rate minus A's, in [-1, 1]; None without pairs.

    Tango's (Statistics in Medicine 17:891, 1998): the differences that a score test does not reject. At 0
    that test is McNemar's, uncorrected. It keeps its coverage and a width without discordant pairs, those of
    all `pairs` in which A or B alone succeeded.
    """
    if pairs == 0:
        return None
    from scipy.optimize import brentq

    z = _Z_95
    found, edge = (only_b - only_a) / pairs, 1 - 1e-12

    def excess(difference: float, quantile: float) -> float:
        return paired_score(difference, only_a, only_b, pairs) - quantile

    low = -1.0 if excess(-edge, z) <= 0 else brentq(excess, -edge, min(found, edge), args=(z,))
    high = 1.0 if excess(edge, -z) >= 0 else brentq(excess, max(found, -edge), edge, args=(-z,))
    return Interval(low=float(low), high=float(high))


def paired_score(difference: float, only_a: float, only_b: float, pairs: float) -> float:
    """Tango's score statistic of a difference in [-1, 1]: standard normal under the hypothesis.

    The arguments are as for `paired_difference_95`.
    """
    variance = pairs * paired_variance(difference, only_a / pairs, only_b / pairs)
    distance = only_b - only_a - pairs * difference
    if variance <= 0:
        return 0.0 if distance == 0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def paired_variance(difference: float, only_a: float, only_b: float) -> float:
    """Variance of one pair's difference, at the maximum likelihood given `difference` in [-1, 1].

    `only_a` and `only_b` are the shares of the pairs in which A or B alone succeeded.
    """
    linear = (2 - only_b + only_a) * difference - only_b - only_a
    constant = -only_a * difference * (1 - difference)
    only_a_share = (math.sqrt(max(0.0, linear**2 - 8 * constant)) - linear) / 4
    return 2 * only_a_share + difference * (1 - difference)


def quantiles(values: Iterable[float]) -> Quantiles | None:
    """Quantiles of the finite values, interpolated linearly; None without values."""
    sample = np.fromiter(values, dtype=np.float64)
    sample = sample[np.isfinite(sample)]
    if sample.size == 0:
        return None
    p50, p95, p99 = np.quantile(sample, [0.5, 0.95, 0.99]).tolist()
    return Quantiles(p50=p50, p95=p95, p99=p99)
