"""Language scores of many episodes in one row: percentages with intervals, and what freshness cost."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.metrics.language import HEADLINES
from eval.metrics.statistics import Interval, cluster_bootstrap_95
from eval.records.schema import EpisodeResult, Share, TextScores


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageRow:
    """What reports read of a language task's row; `summarize_language` says what each means.

    Attributes:
        n_texts: Finished texts.
        n_not_graded: Those that could not be read.
        born: Measure to its percentage, against the truth of the query a text was born in.
        arrived: The same against the truth on delivery.
        n_oracle: Texts that an oracle read from the truth; what is bundled has none and does not say so.
    """

    n_texts: int
    n_not_graded: int
    born: Mapping[str, Mapping[str, Any]]
    arrived: Mapping[str, Mapping[str, Any]]
    n_oracle: int = 0


def summarize_language(episodes: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Language task to its row; empty where no text was finished.

    `born` and `arrived` hold, by measure, the percentage over all graded texts together (`pc`), its 95 %
    bootstrap interval over episodes (`ci95`; None where there is one episode, or all agree), and how many
    decisions it is over (`n`). `lost` is by how many percentage points the headline measure fell from birth
    to arrival, `staleness_ms` the simulated time between the two, milliseconds, in the mean over all texts.
    """
    rows = {}
    for task in HEADLINES:
        scores = [episode.texts[task] for episode in episodes if task in episode.texts]
        if scores:
            rows[task] = _row(task, scores)
    return rows


def mean_staleness_ms(episodes: Sequence[EpisodeResult]) -> float | None:
    """Mean milliseconds of simulated time from request to delivery, over all texts; None without a text."""
    scores = [episode.texts[task] for episode in episodes for task in HEADLINES if task in episode.texts]
    return _staleness_ms(scores) if scores else None


def _staleness_ms(scores: Sequence[TextScores]) -> float:
    return 1e3 * sum(score.staleness_s for score in scores) / sum(score.texts for score in scores)


def _row(task: str, scores: Sequence[TextScores]) -> dict[str, Any]:
    headline = HEADLINES[task]
    born = [score.born.get(headline, Share()) for score in scores]
    arrived = [score.arrived.get(headline, Share()) for score in scores]
    return {
        "n_texts": sum(score.texts for score in scores),
        "n_not_graded": sum(score.not_graded for score in scores),
        "n_oracle": sum(score.oracle for score in scores),
        "staleness_ms": _staleness_ms(scores),
        "born": _percentages([score.born for score in scores]),
        "arrived": _percentages([score.arrived for score in scores]),
        "lost": difference(born, arrived),
    }


def _percentages(shares: Sequence[Mapping[str, Share]]) -> dict[str, Any]:
    measures = dict.fromkeys(measure for share in shares for measure in share)
    rows = {m: percentage([share.get(m, Share()) for share in shares]) for m in measures}
    return {measure: row for measure, row in rows.items() if row is not None}


def percentage(shares: Sequence[Share]) -> dict[str, Any] | None:
    """The percentage over the shares of some episodes together; None where they are of nothing."""
    hits, of = _columns([share for share in shares if share.of])
    if not len(of):
        return None
    return {
        "pc": 100 * float(hits.sum() / of.sum()),
        "ci95": _percent(cluster_bootstrap_95(_rate, hits, of)),
        "n": int(of.sum()),
    }


def difference(before: Sequence[Share], after: Sequence[Share]) -> dict[str, Any] | None:
    """By how many percentage points shares fell, the same episodes before and after; None if of nothing."""
    both = [pair for pair in zip(before, after, strict=True) if all(share.of for share in pair)]
    if not both:
        return None
    columns = (*_columns([pair[0] for pair in both]), *_columns([pair[1] for pair in both]))
    return {
        "pc": 100 * float(_fall(*columns)),
        "ci95": _percent(cluster_bootstrap_95(_fall, *columns)),
    }


def _columns(shares: Sequence[Share]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([share.hits for share in shares], float), np.array([share.of for share in shares], float)


def _rate(hits: np.ndarray, of: np.ndarray, axis: int = -1) -> np.ndarray:
    return hits.sum(axis=axis) / of.sum(axis=axis)


def _fall(
    hits: np.ndarray, of: np.ndarray, later_hits: np.ndarray, later_of: np.ndarray, axis: int = -1
) -> np.ndarray:
    return _rate(hits, of, axis) - _rate(later_hits, later_of, axis)


def _percent(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [100 * interval.low, 100 * interval.high]
