"""How simulated time passed in some episodes: time to success, query rate, control steps spent waiting."""

import statistics
from collections.abc import Sequence
from typing import Any

from eval.records.schema import EpisodeResult


def summarize_time(graded: Sequence[EpisodeResult]) -> dict[str, Any]:
    """The part of a row of results that is about simulated time, over graded episodes.

    Every value is None where no episode recorded its simulated time.

    Returns:
        `time_to_success_s`: mean and median simulated seconds over the `n` solved episodes; None if none was.
        `query_hz`: queries per simulated second, over all episodes together.
        `pc_held`: percent of the control steps in which the robot was held still for want of an action.
        `pc_continued`: percent of those in which a query was under way and the chunk before it went on.
        `skipped_per_query`: first actions of a chunk that were left out, per query.
        `tokens_per_simulated_s`: language tokens decoded per simulated second, over all episodes together.
    """
    timed = [episode for episode in graded if episode.simulated_s is not None]
    steps, queries = (sum(counts) for counts in ([e.steps for e in timed], [e.queries for e in timed]))
    return {
        "time_to_success_s": _times([e.success_s for e in timed if e.success_s is not None]),
        "query_hz": _ratio(queries, sum(e.simulated_s or 0.0 for e in timed)),
        "pc_held": _ratio(100 * sum(e.held_steps for e in timed), steps),
        "pc_continued": _ratio(100 * sum(e.continued_steps for e in timed), steps),
        "tokens_per_simulated_s": _ratio(
            sum(e.tokens for e in timed), sum(e.simulated_s or 0.0 for e in timed)
        ),
        "skipped_per_query": _ratio(sum(e.skipped_actions for e in timed), queries),
    }


def _times(seconds: Sequence[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    return {"mean": statistics.fmean(seconds), "median": statistics.median(seconds), "n": len(seconds)}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
