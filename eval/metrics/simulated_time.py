"""Metrics of simulated time: time to success of one run and of two, query rate, idle control steps."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from contracts.episode import EpisodeResult, Outcome, graded_only, solved, states_of
from eval.metrics.statistics import (
    Interval,
    MeanDifference,
    Rate,
    agreed,
    cluster_bootstrap_95,
    mean_95,
    mean_difference,
    ratio_of_sums,
    success_rate,
)


def restricted_s(episode: EpisodeResult, limits_s: Mapping[str, float]) -> float | None:
    """Simulated seconds to success, or the suite's limit if the task was not solved; None if not known."""
    if episode.outcome is Outcome.SUCCESS:
        return episode.success_s
    at_limit = episode.simulated_s if episode.outcome is Outcome.TIMEOUT else None
    return limits_s.get(episode.key.suite, at_limit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeToSuccess:
    """Simulated seconds to success over the solved episodes."""

    mean: float
    median: float
    n: int  # solved episodes


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedTime:
    """Simulated time of some episodes; all fields are None if none recorded it."""

    time_to_success_s: TimeToSuccess | None = None  # None if none was solved
    # Mean simulated seconds to success, where an unsolved episode counts as its limit, and its interval.
    restricted_mean_s: float | None = None
    restricted_mean_ci95: Interval | None = None
    query_hz: float | None = None  # queries per simulated second
    pc_idle: float | None = None  # percent of control steps in which the robot was idle
    tokens_per_simulated_s: float | None = None  # decoded language tokens


def summarize_time(graded: Sequence[EpisodeResult], limits_s: Mapping[str, float]) -> SimulatedTime:
    """Simulated time over graded episodes.

    `limits_s` is each suite's step limit in simulated seconds, as far as it is known.
    """
    timed = [episode for episode in graded if episode.simulated_s is not None]
    steps, queries = sum(e.steps for e in timed), sum(e.queries for e in timed)
    seconds = sum(e.simulated_s or 0.0 for e in timed)
    times, time_to_success = [e.success_s for e in timed if e.success_s is not None], None
    if times:
        median = statistics.median(times)
        time_to_success = TimeToSuccess(mean=statistics.fmean(times), median=median, n=len(times))
    restricted = [(each, s) for each in timed if (s := restricted_s(each, limits_s)) is not None]
    return SimulatedTime(
        time_to_success_s=time_to_success,
        restricted_mean_s=statistics.fmean(s for _, s in restricted) if restricted else None,
        restricted_mean_ci95=mean_95([s for _, s in restricted], states_of(each for each, _ in restricted)),
        query_hz=_ratio(queries, seconds),
        pc_idle=_ratio(100 * sum(e.idle_steps for e in timed), steps),
        tokens_per_simulated_s=_ratio(sum(e.tokens for e in timed), seconds),
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeRatio:
    """Ratio of simulated times to success, B over A, over episodes that both runs solved."""

    ratio: float  # geometric mean of the episodes' ratios; below 1, B is faster
    ci95: Interval | None  # 95 % bootstrap interval over episodes; None if undefined
    n_pairs: int  # episodes solved by both


def time_ratio(pairs: Sequence[tuple[EpisodeResult, EpisodeResult]]) -> TimeRatio | None:
    """The ratio over pairs (A, B) that both solved; None if there is none, or no time was recorded.

    The mean is taken over logarithms, so swapping the runs inverts ratio and interval. If at least six ratios
    all agree, the interval has no width: the median ratio then has that value with 97 % confidence.
    """
    timed = [(a, math.log(b.success_s / a.success_s)) for a, b in pairs if a.success_s and b.success_s]
    if not timed:
        return None
    logs, states = np.array([log for _, log in timed]), states_of(a for a, _ in timed)
    ratio, found = math.exp(logs.mean()), mean_95(logs, states)
    interval = found and Interval(low=math.exp(found.low), high=math.exp(found.high))
    return TimeRatio(ratio=ratio, ci95=interval or agreed(ratio, states), n_pairs=len(logs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestrictedTimes:
    """Mean times to success of two runs, where an unsolved episode counts as its limit."""

    seconds: MeanDifference  # simulated seconds in A and B, and their difference
    ratio: float  # B's mean over A's; below 1, B is faster
    ci95: Interval | None  # its 95 % bootstrap interval over episodes; None if undefined


def restricted_times(
    pairs: Sequence[tuple[EpisodeResult, EpisodeResult]], limits_s: Mapping[str, float]
) -> RestrictedTimes | None:
    """The restricted mean times over graded pairs (A, B); None if there is none, or no time was recorded.

    Without a solved episode there is no interval.
    """
    both = [(a, restricted_s(a, limits_s), restricted_s(b, limits_s)) for a, b in pairs]
    timed = [(of, (a, b)) for of, a, b in both if a is not None and b is not None]
    seconds, states = [each for _, each in timed], states_of(of for of, _ in timed)
    difference = mean_difference(seconds, states)
    if difference is None or not difference.a or not difference.b:
        return None
    ratio = difference.b / difference.a
    columns = np.array(seconds).T[::-1]
    interval = cluster_bootstrap_95(ratio_of_sums, *columns, clusters=states, method="percentile")
    if not any(solved(episode) for pair in pairs for episode in pair):
        return RestrictedTimes(seconds=dataclasses.replace(difference, ci95=None), ratio=ratio, ci95=None)
    return RestrictedTimes(seconds=difference, ratio=ratio, ci95=interval or agreed(ratio, states))


def success_curve(results: Sequence[EpisodeResult]) -> list[tuple[float, Rate]]:
    """Simulated seconds and the rate solved until then of the graded episodes, up to the longest one.

    Intervals are pointwise. Empty if no episode is graded or one lacks its time.
    """
    graded = graded_only(results)
    lengths = [episode.simulated_s for episode in graded if episode.simulated_s is not None]
    if not graded or len(lengths) < len(graded):
        return []
    ends = [length if solved(episode) else math.inf for episode, length in zip(graded, lengths, strict=True)]
    at = sorted({0.0, *(end for end in ends if end < math.inf), max(lengths)})
    rates = [success_rate([end <= seconds for end in ends], states_of(graded)) for seconds in at]
    return [(seconds, rate) for seconds, rate in zip(at, rates, strict=True) if rate]
