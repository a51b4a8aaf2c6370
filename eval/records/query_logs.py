"""Reads query logs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from configs.errors import UsageError
from eval.records.json_files import read_json_lines
from eval.records.schema import RunFolder
from eval.records.timing import Delivery, Latency
from oxygen.policy.reply import TextFinished, TextRequest, TextTimes
from sim_envs.truth.ground_truth import CompletedAction, Fact, Memory, Narration, Phase, Truth, Verb
from sim_envs.truth.nouns import Nouns
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryRecord:
    """A query of a query log, with the fields that reports read.

    Attributes:
        actions: The chunk of actions; NaN where the file holds null.
        timings_ms: Stage to milliseconds.
        step: Control step at which it was issued.
        steps: Control steps until the next query.
        actions_step: Control step from which its actions could be executed.
        free_step: Control step from which the next query could be issued.
        spans: Query whose chunk was executed (None while the robot was held still), index of the first
            action, and number of control steps, in order; empty on clock `paused`.
        skipped: Leading actions of the chunk that were skipped.
        latency: Simulated latency; None on clock `paused`.
        requested: Texts requested in it.
        delivered: Texts finished in it and delivered before the episode ended.
        dropped: Requests dropped in it for lack of a slot.
        truth: Ground truth; None if the world provides none.
    """

    actions: Float64[np.ndarray, "horizon action"]
    timings_ms: Mapping[str, float]
    step: int = 0
    steps: int = 0
    actions_step: int = 0
    free_step: int = 0
    spans: Sequence[tuple[int | None, int, int]] = ()
    skipped: int = 0
    latency: Latency | None = None
    requested: Sequence[TextRequest] = ()
    delivered: Sequence[Delivery] = ()
    dropped: Sequence[TextRequest] = ()
    truth: Truth | None = None


def read_queries(folder: RunFolder, key: EpisodeKey) -> list[QueryRecord]:
    """The queries of one episode in order; empty without a query log.

    Raises:
        UsageError: A line is not a query.
    """
    path, queries = folder.queries_path(key), []
    for number, record in enumerate(read_json_lines(path), start=1):
        try:
            queries.append(parse_query(record))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise UsageError(f"{path}, line {number} is not a query: {error!r}") from None
    return queries


def parse_query(record: Mapping[str, Any]) -> QueryRecord:
    """The query of one line of a query log."""
    actions = np.atleast_2d(np.array(record["actions"], dtype=np.float64))
    step = int(record.get("step", 0))
    return QueryRecord(
        actions=actions,
        timings_ms=dict(record["timings_ms"]),
        step=step,
        steps=int(record.get("steps", 0)),
        actions_step=int(record.get("actions_step", step)),
        free_step=int(record.get("free_step", step)),
        spans=[(chunk, first, steps) for chunk, first, steps in record.get("spans", ())],
        skipped=int(record.get("skipped", 0)),
        latency=Latency(**record["latency"]) if "latency" in record else None,
        requested=[TextRequest(**text) for text in record.get("requested", ())],
        delivered=[_delivery(text, record) for text in record.get("finished", ())],
        dropped=[TextRequest(**text) for text in record.get("dropped", ())],
        truth=_truth(record.get("truth")),
    )


def _delivery(record: Mapping[str, Any], query: Mapping[str, Any]) -> Delivery:
    """A delivered text; step and truth default to the query's."""
    fields: dict[str, Any] = {"step": query.get("step", 0), "truth": query.get("truth"), **record}
    step, truth = int(fields.pop("step")), _truth(fields.pop("truth"))
    if record["times"] is not None:
        fields["times"] = TextTimes(**record["times"])
    return Delivery(text=TextFinished(**fields), step=step, truth=truth)


def _truth(record: Mapping[str, Any] | None) -> Truth | None:
    if record is None:
        return None
    narrated, nouns, reached = record["narration"], record.get("nouns"), record.get("textual_memory")
    done = [CompletedAction(**{**action, "verb": Verb(action["verb"])}) for action in record["done"]]
    return Truth(
        narration=Narration(**{**narrated, "phase": Phase(narrated["phase"])}),
        memory=Memory(done=tuple(done), facts=frozenset(Fact(**fact) for fact in record["facts"])),
        nouns=nouns
        and Nouns(
            movable=frozenset(nouns["movable"]),
            parts=frozenset(nouns["parts"]),
            places=frozenset(nouns["places"].items()),
        ),
        textual_memory=None if reached is None else tuple(Fact(**fact) for fact in reached),
    )
