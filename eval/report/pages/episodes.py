"""The data of the episode viewer: a timeline of queries, control steps and texts graded against the truth."""

from collections.abc import Sequence
from typing import Any

from eval.metrics.language import HEADLINES, ORACLE, grade_text, true_text
from eval.records.query_logs import QueryRecord, delivery_step
from eval.records.schema import EpisodeResult, Share
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


def staleness_steps(queries: Sequence[QueryRecord]) -> list[tuple[str, int]]:
    """Language task and control steps from request to delivery of every delivered text."""
    return [
        (text.task, delivery_step(text) - queries[text.requested_query].step)
        for query in queries
        for text in query.delivered
        if text.requested_query < len(queries)
    ]


def _texts(queries: Sequence[QueryRecord]) -> list[dict[str, Any]]:
    """All requested texts in the order of their requests."""
    delivered = {text.request_id: (query, text) for query in queries for text in query.delivered}
    dropped = {each.request_id: query.step for query in queries for each in query.dropped}
    requested = {each.request_id: (each.task, query) for query in queries for each in query.requested}
    for number, (_, written) in delivered.items():
        if number not in requested and written.requested_query < len(queries):
            requested[number] = written.task, queries[written.requested_query]
    found = []
    for number, (task, query) in requested.items():
        text: dict[str, Any] = {"task": task, "requested": query.step}
        if number in delivered:
            arrived, written = delivered[number]
            text |= {
                "state": "finished",
                "until": written.step,
                "text": written.text,
                "oracle": written.reason == ORACLE,
                "at_request": _mark(written.task, written.text, query.truth),
                "on_delivery": _mark(written.task, written.text, arrived.truth_on_delivery(written)),
            }
        elif number in dropped:
            text |= {"state": "dropped", "until": dropped[number]}
        else:
            text |= {"state": "cancelled", "until": None}
        found.append(text)
    return found


def _mark(task: str, text: str, truth: Truth | None) -> dict[str, Any] | None:
    """The truth, and the score in percent: None if the text cannot be read. None without a truth."""
    if truth is None or task not in HEADLINES:
        return None
    shares = grade_text(task, text, truth)
    score = None if shares is None else shares.get(HEADLINES[task], Share())
    percent = (
        100 * score.hits / score.of if score and score.of else 100.0
    )  # an empty text about nothing is right
    return {"truth": true_text(task, truth), "score": None if score is None else percent}
