"""Query logs: one query per line."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from configs.errors import check
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.latency import Latency
from contracts.observation import ActionPrefix
from contracts.query import ActionSpan, FedText, QueryRecord
from contracts.text import Text, TextRequest, TextTimes
from contracts.truth import Truth
from eval.records.json_files import read_json_lines
from eval.records.schema import RunFolder


def query_to_json(query: QueryRecord) -> dict[str, Any]:
    """One line of the query log."""
    timing: dict[str, Any] = {}
    if query.latency is not None:
        timing = {
            "latency": dataclasses.asdict(query.latency),
            "actions_step": query.actions_step,
            "free_step": query.free_step,
            "continued": query.continued,
            "idle": query.idle,
            "skipped": query.skipped,
            "spans": query.spans,
            **({"blended": query.blended} if query.blended else {}),
        }
        if query.action_prefix is not None:
            timing["action_prefix"] = dataclasses.asdict(query.action_prefix)
    prompted: dict[str, Any] = {}
    if query.prompt is not None:
        fed = {field: dataclasses.asdict(text) for field, text in query.fed.items()}
        prompted = {"prompt": query.prompt, "feedback": fed, "prompt_cut": query.prompt_cut}
    finished = [dataclasses.asdict(text) for text in query.delivered]
    for record, text in zip(finished, query.delivered, strict=True):
        if text.step != query.step:
            record["truth"] = truth_to_json(query.truth_on_delivery(text))
    return {
        "query": query.index,
        "step": query.step,
        "steps": query.steps,
        "timings_ms": {stage: round(milliseconds, 4) for stage, milliseconds in query.timings_ms.items()},
        **timing,
        **prompted,
        "tokens": query.tokens,
        "actions": query.actions.tolist(),
        "requested": [dataclasses.asdict(request) for request in query.requested],
        "finished": finished,
        "dropped": [dataclasses.asdict(request) for request in query.dropped],
        "truth": truth_to_json(query.truth),
        **({} if query.truth_error is None else {"truth_error": query.truth_error}),
    }


def read_queries(folder: RunFolder, key: EpisodeKey) -> list[QueryRecord]:
    """The queries of one episode in order, none without a query log; a damaged line is a UsageError."""
    path, queries = folder.queries_path(key), []
    for number, record in enumerate(read_json_lines(path), start=1):
        try:
            queries.append(_parse_query(record))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, UsageError) as error:
            raise UsageError(f"{path}, line {number} is not a query: {error!r}") from None
    return queries


_COUNTS = ("steps", "continued", "skipped", "blended", "prompt_cut", "tokens")
"""Fields of a line that are 0 if they are absent."""


def _parse_query(record: Mapping[str, Any]) -> QueryRecord:
    step, delivered = int(record.get("step", 0)), []
    truths = {step: _parse_truth(record.get("truth"))}
    for fields in record.get("finished", ()):
        at = int(fields.get("step", step))
        if "truth" in fields:
            truths[at] = _parse_truth(fields["truth"])
        times = None if fields["times"] is None else TextTimes(**fields["times"])
        known: dict[str, Any] = {**fields, "step": at, "times": times}
        known.pop("truth", None)
        delivered.append(Text(**known))
    counts: Any = {name: int(record.get(name, 0)) for name in _COUNTS}
    return QueryRecord(
        **counts,
        idle=int(record.get("idle", record.get("held", 0))),  # `held` before it was called idle
        index=int(record.get("query", 0)),
        actions=np.atleast_2d(np.array(record["actions"], dtype=np.float64)),
        timings_ms=dict(record["timings_ms"]),
        step=step,
        latency=Latency(**record["latency"]) if "latency" in record else None,
        actions_step=int(record.get("actions_step", step)),
        free_step=int(record.get("free_step", step)),
        prompt=record.get("prompt"),
        fed={field: FedText(**text) for field, text in record.get("feedback", {}).items()},
        spans=[ActionSpan(*span) for span in record.get("spans", ())],
        action_prefix=ActionPrefix(**record["action_prefix"]) if "action_prefix" in record else None,
        requested=[TextRequest(**request) for request in record.get("requested", ())],
        delivered=delivered,
        dropped=[TextRequest(**request) for request in record.get("dropped", ())],
        truths=truths,
        truth_error=record.get("truth_error"),
    )


def truth_to_json(truth: Truth | None) -> dict[str, Any] | None:
    """The truth as JSON: facts sorted, completed actions in order, nouns if the world has its own."""
    if truth is None:
        return None
    record: dict[str, Any] = {
        "narration": dataclasses.asdict(truth.narration),
        "done": [dataclasses.asdict(action) for action in truth.memory.done],
        "facts": [dataclasses.asdict(fact) for fact in sorted(truth.memory.facts)],
    }
    if truth.textual_memory is not None:
        record["textual_memory"] = [dataclasses.asdict(fact) for fact in truth.textual_memory]
    if nouns := truth.nouns:
        names = {"movable": sorted(nouns.movable), "parts": sorted(nouns.parts)}
        record["nouns"] = {**names, "places": dict(sorted(nouns.places))}
    return record


def _parse_truth(record: Mapping[str, Any] | None) -> Truth | None:
    if record is None:
        return None
    nouns = record.get("nouns")
    content = {
        "narration": record["narration"],
        "memory": {"done": record["done"], "facts": record["facts"]},
        "nouns": nouns and {**nouns, "places": list(nouns["places"].items())},
        "textual_memory": record.get("textual_memory"),
    }
    return check(Truth, content, source="truth")
