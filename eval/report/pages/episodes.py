"""The data of the episode viewer: a timeline of queries, control steps and texts graded against the truth."""

from collections.abc import Sequence
from typing import Any

from eval.metrics.language import HEADLINES, ORACLE, true_text
from eval.records.query_logs import QueryRecord
from eval.records.schema import EpisodeResult
from eval.report.comparison_texts import headline_share, requested_texts
from oxygen.policy.reply import Text
from sim_envs.truth.ground_truth import Truth


def episode_data(
    episode: EpisodeResult, queries: Sequence[QueryRecord], *, deadline_ms: float | None
) -> dict[str, Any]:
    """One variant of an episode. Times are control steps; `deadline_ms` is the latency budget of a query."""
    spans, truths = [], []
    for number, query in enumerate(queries):
        start = query.step
        for chunk, _, steps in query.spans or [(number, 0, query.steps)]:
            kind = "held" if chunk is None else "new" if chunk == number else "continued"
            spans.append((kind, start, start + steps))
            start += steps
        if query.truth is not None:
            texts = [(task.replace("_", " "), true_text(task, query.truth)) for task in HEADLINES]
            words = [f"{task.capitalize()}: “{text}”" for task, text in texts if text is not None]
            truths.append([query.step, " ".join(words)])
    return {
        "outcome": episode.outcome.value,
        "steps": episode.steps,
        "hz": episode.steps / episode.simulated_s if episode.simulated_s else None,
        "error": episode.error,
        "traceback": episode.traceback,
        "queries": [
            {
                "issued": query.step,
                "actions": query.actions_step,
                "free": query.free_step,
                "skipped": query.skipped,
                "late": missed(query, deadline_ms),
            }
            for query in queries
        ],
        "spans": spans,
        "texts": _texts(queries),
        "truths": truths,
    }


def missed(query: QueryRecord, deadline_ms: float | None) -> bool:
    """Whether the query took longer than the latency budget."""
    return deadline_ms is not None and query.timings_ms.get("frame", 0.0) > deadline_ms


def _texts(queries: Sequence[QueryRecord]) -> list[dict[str, Any]]:
    """All requested texts in the order of their requests."""
    found = []
    for each in requested_texts(queries):
        shown: dict[str, Any] = {"task": each.request.task, "requested": each.asked.step}
        if each.text is not None:
            at_request, on_delivery = (_mark(each.text, truth) for truth in each.truths)
            shown |= {
                "state": "finished",
                "until": each.text.step,
                "text": each.text.text,
                "oracle": each.text.reason == ORACLE,
                "at_request": at_request,
                "on_delivery": on_delivery,
            }
        elif each.ended is not None:
            shown |= {"state": "dropped", "until": each.ended.step}
        else:
            shown |= {"state": "cancelled", "until": None}
        found.append(shown)
    return found


def _mark(text: Text, truth: Truth | None) -> dict[str, Any] | None:
    """The truth, and the score in percent: None if the text cannot be read. None without a truth."""
    if truth is None or text.task not in HEADLINES:
        return None
    score = headline_share(text.task, text.text, truth)
    percent = 100 * score.hits / score.of if score and score.of else 100.0  # nothing about nothing is right
    return {"truth": true_text(text.task, truth), "score": None if score is None else percent}
