"""Time to success: the ratio between two runs, and the curve of episodes solved over time."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float64

from eval.metrics.statistics import Interval, bounds, cluster_bootstrap_95, wilson_95
from eval.metrics.success import graded_only, solved
from eval.records.schema import EpisodeResult

_MIN_EQUAL_RATIOS = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeRatio:
    """Ratio of simulated times to success, B over A, over episodes that both runs solved.

    Attributes:
        ratio: Geometric mean of the episodes' ratios; below 1, B is faster.
        ci95: 95 % bootstrap interval over episodes; None if undefined.
        n_pairs: Episodes solved by both.
    """

    ratio: float
    ci95: Interval | None
    n_pairs: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Percentage of episodes solved by a time, with a pointwise 95 % Wilson interval.

    Attributes:
        seconds: Simulated time.
        percent: Solved until then, of all graded episodes; `low` and `high` are the interval's ends.
    """

    seconds: float
    percent: float
    low: float
    high: float


def time_ratio(pairs: Sequence[tuple[EpisodeResult, EpisodeResult]]) -> TimeRatio | None:
    """The ratio over pairs (A, B) that both solved; None if there is none, or no time was recorded.

    The mean is taken over logarithms, so swapping the runs inverts ratio and interval. If at least six ratios
    all agree, the interval has no width: the median ratio then has that value with 97 % confidence.
    """
    seconds = [(a.success_s, b.success_s) for a, b in pairs]
    logs = np.array([math.log(b / a) for a, b in seconds if a and b])
    if not len(logs):
        return None
    return TimeRatio(ratio=math.exp(logs.mean()), ci95=_interval(logs), n_pairs=len(logs))


def restricted_seconds(
    episodes: Iterable[EpisodeResult], limits_s: Mapping[str, float]
) -> "Float64[np.ndarray, ' episode']":
    """Simulated seconds to success of each graded episode; failures count as their suite's limit."""
    graded = graded_only(list(episodes))
    return np.array([limits_s[e.key.suite] if e.success_s is None else e.success_s for e in graded])


def _interval(logs: np.ndarray) -> Interval | None:
    found = cluster_bootstrap_95(np.mean, logs, method="percentile")
    if found is not None:
        return Interval(low=math.exp(found.low), high=math.exp(found.high))
    if len(logs) >= _MIN_EQUAL_RATIOS:
        ratio = math.exp(logs.mean())
        return Interval(low=ratio, high=ratio)
    return None


def success_curve(results: Sequence[EpisodeResult]) -> list[CurvePoint]:
    """Step function of the graded episodes solved over time, from 0 s to the longest episode.

    Empty if no episode is graded or one lacks its time.
    """
    graded = graded_only(results)
    lengths = [episode.simulated_s for episode in graded if episode.simulated_s is not None]
    if not graded or len(lengths) < len(graded):
        return []
    times = np.sort([e.simulated_s for e in graded if solved(e) and e.simulated_s is not None])
    at = sorted({0.0, *times.tolist(), max(lengths)})
    curve = []
    for seconds, count in zip(at, np.searchsorted(times, at, side="right").tolist(), strict=True):
        low, high = bounds(wilson_95(count, len(graded)), 100) or (0.0, 100.0)
        curve.append(CurvePoint(seconds=seconds, percent=100 * count / len(graded), low=low, high=high))
    return curve
