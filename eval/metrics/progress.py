"""Progress: the fraction of a task's criteria that are met, for worlds with partial credit."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from eval.metrics.statistics import bounds, cluster_bootstrap_95
from eval.records.schema import EpisodeResult, Outcome


def summarize_progress(episodes: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Mean progress of graded episodes, percent, with a bootstrap interval over episodes.

    Both are None if progress equals success or is not recorded for all episodes; the interval also if all
    values are equal.
    """
    shares = [episode.progress for episode in episodes if episode.progress is not None]
    solved = [float(episode.outcome is Outcome.SUCCESS) for episode in episodes]
    if len(shares) < len(episodes) or shares == solved:
        return {"pc_progress": None, "pc_progress_ci95": None}
    values = np.array(shares, np.float64)
    interval = cluster_bootstrap_95(np.mean, values, method="percentile")
    return {"pc_progress": 100 * float(values.mean()), "pc_progress_ci95": bounds(interval, 100)}
