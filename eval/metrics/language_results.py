"""Language scores over many episodes: percentages with intervals, at request and on delivery."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.metrics.language import HEADLINES
from eval.metrics.statistics import (
    MeanDifference,
    bounds,
    cluster_bootstrap_95,
    ratio_of_sums,
)
from eval.records.schema import EpisodeResult, Share, TextScores


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageRow:
    """The fields of a language task's row that reports read; see `summarize_language`.

    Attributes:
        n_texts: Finished texts.
        n_not_graded: Texts that could not be parsed.
        at_request: Measure to percentage, against the truth when the text was requested.
        on_delivery: The same against the truth on delivery.
        n_oracle: Texts written by the oracle from the truth; absent (0) in bundled results.
    """

    n_texts: int
    n_not_graded: int
    at_request: Mapping[str, Mapping[str, Any]]
    on_delivery: Mapping[str, Mapping[str, Any]]
    n_oracle: int = 0


def summarize_language(episodes: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Language task to its row; empty if no text was finished.

    `at_request` and `on_delivery` map each measure to its percentage over all graded texts (`pc`), the 95 %
    bootstrap interval over episodes (`ci95`; None for one episode, or if all agree) and the number of
    decisions (`n`). `current` is currency: the percentage of simulated time in which the text delivered last
    is true, memories by the F1 of their items; None on clock `paused`. `lost` is the drop of the headline
    measure from request to delivery in percentage points, `staleness_ms` the mean simulated time between.
    """
    rows = {}
    for task in HEADLINES:
        scores = [episode.texts[task] for episode in episodes if task in episode.texts]
        if scores:
            rows[task] = {**_row(task, scores), "current": _current(task, episodes)}
    return rows


def currency_differences(
    pairs: Sequence[tuple[EpisodeResult, EpisodeResult]],
) -> dict[str, MeanDifference]:
    """Language task to the currency of its texts in both runs, percent, and B minus A in points.

    Over pairs (A, B), for tasks that both runs have texts of; the interval is over episodes.
    """
    found = {}
    for task in HEADLINES:
        a, b = (_current_columns(task, [pair[side] for pair in pairs]) for side in (0, 1))
        if a is not None and b is not None:
            percent = [100 * float(ratio_of_sums(*columns)) for columns in (a, b)]
            found[task] = MeanDifference(
                a=percent[0],
                b=percent[1],
                difference=percent[1] - percent[0],
                ci95=cluster_bootstrap_95(_rise, *a, *b, method="percentile"),
                n_pairs=len(pairs),
            )
    return found


def _current(task: str, episodes: Sequence[EpisodeResult]) -> dict[str, Any] | None:
    """Percentage of simulated time in which the last text is true, with interval; None if not recorded."""
    columns = _current_columns(task, episodes)
    if columns is None:
        return None
    interval = cluster_bootstrap_95(ratio_of_sums, *columns, method="percentile")
    return {
        "pc": 100 * float(ratio_of_sums(*columns)),
        "ci95": bounds(interval, 100),
        "n": len(episodes),
    }


def _current_columns(task: str, episodes: Sequence[EpisodeResult]) -> tuple[np.ndarray, np.ndarray] | None:
    """Seconds in which the last text was true, and all seconds, by episode.

    An episode without a text counts as one in which nothing was true. None if no episode has a text of the
    task, or one with texts has no record of it.
    """
    seconds = [episode.texts[task].current_s if task in episode.texts else 0.0 for episode in episodes]
    total = np.array([episode.simulated_s or 0.0 for episode in episodes])
    if None in seconds or not total.sum() or not any(task in episode.texts for episode in episodes):
        return None
    return np.array(seconds, np.float64), total


def mean_staleness_ms(episodes: Sequence[EpisodeResult]) -> float | None:
    """Mean simulated milliseconds from request to delivery over all texts; None without texts."""
    scores = [episode.texts[task] for episode in episodes for task in HEADLINES if task in episode.texts]
    return _staleness_ms(scores) if scores else None


def _staleness_ms(scores: Sequence[TextScores]) -> float:
    return 1e3 * sum(score.staleness_s for score in scores) / sum(score.texts for score in scores)


def _row(task: str, scores: Sequence[TextScores]) -> dict[str, Any]:
    headline = HEADLINES[task]
    at_request = [score.at_request.get(headline, Share()) for score in scores]
    on_delivery = [score.on_delivery.get(headline, Share()) for score in scores]
    return {
        "n_texts": sum(score.texts for score in scores),
        "n_not_graded": sum(score.not_graded for score in scores),
        "n_oracle": sum(score.oracle for score in scores),
        "staleness_ms": _staleness_ms(scores),
        "at_request": _percentages([score.at_request for score in scores]),
        "on_delivery": _percentages([score.on_delivery for score in scores]),
        "lost": difference(at_request, on_delivery),
    }


def _percentages(shares: Sequence[Mapping[str, Share]]) -> dict[str, Any]:
    measures = dict.fromkeys(measure for share in shares for measure in share)
    rows = {m: percentage([share.get(m, Share()) for share in shares]) for m in measures}
    return {measure: row for measure, row in rows.items() if row is not None}


def percentage(shares: Sequence[Share]) -> dict[str, Any] | None:
    """Pooled percentage with interval; None if all totals are 0."""
    hits, of = _columns([share for share in shares if share.of])
    if not len(of):
        return None
    return {
        "pc": 100 * float(hits.sum() / of.sum()),
        "ci95": bounds(cluster_bootstrap_95(ratio_of_sums, hits, of), 100),
        "n": int(of.sum()),
    }


def difference(before: Sequence[Share], after: Sequence[Share]) -> dict[str, Any] | None:
    """Drop in percentage points, paired by episode; None if no episode has both."""
    both = [pair for pair in zip(before, after, strict=True) if all(share.of for share in pair)]
    if not both:
        return None
    columns = (*_columns([pair[0] for pair in both]), *_columns([pair[1] for pair in both]))
    return {"pc": 100 * float(_fall(*columns)), "ci95": bounds(cluster_bootstrap_95(_fall, *columns), 100)}


def _columns(shares: Sequence[Share]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([share.hits for share in shares], float), np.array([share.of for share in shares], float)


def _rise(a: np.ndarray, of_a: np.ndarray, b: np.ndarray, of_b: np.ndarray, axis: int = -1) -> np.ndarray:
    return 100 * (ratio_of_sums(b, of_b, axis) - ratio_of_sums(a, of_a, axis))


def _fall(
    hits: np.ndarray, of: np.ndarray, later_hits: np.ndarray, later_of: np.ndarray, axis: int = -1
) -> np.ndarray:
    return ratio_of_sums(hits, of, axis) - ratio_of_sums(later_hits, later_of, axis)
