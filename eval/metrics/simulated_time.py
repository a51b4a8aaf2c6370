"""Metrics of simulated time: time to success, query rate, held control steps."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.metrics.statistics import bounds, cluster_bootstrap_95
from eval.records.schema import EpisodeResult, Outcome


def restricted_s(episode: EpisodeResult, limits_s: Mapping[str, float]) -> float | None:
    """Simulated seconds to success, or the suite's limit if the task was not solved; None if not known."""
    if episode.outcome is Outcome.SUCCESS:
        return episode.success_s
    at_limit = episode.simulated_s if episode.outcome is Outcome.TIMEOUT else None
    return limits_s.get(episode.key.suite, at_limit)


def summarize_time(graded: Sequence[EpisodeResult], limits_s: Mapping[str, float]) -> dict[str, Any]:
    """The fields of a results row about simulated time, over graded episodes.

    All are None if no episode recorded its simulated time.

    Args:
        graded: The episodes.
        limits_s: Each suite's step limit in simulated seconds, as far as it is known.

    Returns:
        `restricted_mean_s`: mean simulated seconds to success, where an unsolved episode counts as its limit,
            with its bootstrap interval in `restricted_mean_ci95`.
        `time_to_success_s`: mean and median simulated seconds over the `n` solved episodes; None if none.
        `query_hz`: queries per simulated second, over all episodes.
        `pc_held`: percent of control steps in which the robot held still for lack of an action.
        `pc_continued`: percent of control steps in which the previous chunk continued during a query.
        `skipped_per_query`: skipped leading actions of a chunk, per query.
        `tokens_per_simulated_s`: decoded language tokens per simulated second, over all episodes.
    """
    timed = [episode for episode in graded if episode.simulated_s is not None]
    steps, queries = sum(e.steps for e in timed), sum(e.queries for e in timed)
    seconds = sum(e.simulated_s or 0.0 for e in timed)
    times, time_to_success = [e.success_s for e in timed if e.success_s is not None], None
    if times:
        median = statistics.median(times)
        time_to_success = {"mean": statistics.fmean(times), "median": median, "n": len(times)}
    restricted = [s for each in timed if (s := restricted_s(each, limits_s)) is not None]
    interval = (
        cluster_bootstrap_95(np.mean, np.array(restricted), method="percentile") if restricted else None
    )
    return {
        "time_to_success_s": time_to_success,
        "restricted_mean_s": statistics.fmean(restricted) if restricted else None,
        "restricted_mean_ci95": bounds(interval),
        "query_hz": _ratio(queries, seconds),
        "pc_held": _ratio(100 * sum(e.held_steps for e in timed), steps),
        "pc_continued": _ratio(100 * sum(e.continued_steps for e in timed), steps),
        "tokens_per_simulated_s": _ratio(sum(e.tokens for e in timed), seconds),
        "skipped_per_query": _ratio(sum(e.skipped_actions for e in timed), queries),
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
