"""The record of a query, and the query logs that hold one per line."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, UInt8

from configs.cli import check
from configs.errors import UsageError
from configs.latency import ActionPrefix, Latency
from eval.records.json_files import read_json_lines
from eval.records.schema import RunFolder
from oxygen.policy.reply import Text, TextRequest, TextTimes
from sim_envs.truth.ground_truth import Truth
from sim_envs.world import EpisodeKey, Observation


class ActionSpan(NamedTuple):
    """Consecutive control steps that execute one chunk, or hold still."""

    chunk: int | None  # the query whose actions are executed; None while holding
    first: int  # index of the first action in its chunk
    steps: int  # number of control steps


class Snapshot(NamedTuple):
    """Image of a camera at a control step between two queries, for the video only."""

    step: int
    camera: str
    image: UInt8[np.ndarray, "height width 3"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedText:
    """A text in the prompt of a query."""

    text: str  # as it stands there
    step: int | None = None  # control step at which it was delivered; None for a constant
    observed_step: int | None = None  # control step of the observation that it describes; None for a constant
    cut: int = 0  # characters that were cut from its end


_NO_ACTIONS = np.empty((0, 0))
_NO_OBSERVATION = Observation(images={}, state=np.empty(0), language="")


@dataclasses.dataclass(kw_only=True)
class QueryRecord:
    """One policy call and the control steps until the next one. A rollout fills it in until it yields it."""

    index: int = 0  # number of the query in the episode
    # The chunk of actions; NaN where the log has null.
    actions: Float64[np.ndarray, "horizon action"] = dataclasses.field(default_factory=lambda: _NO_ACTIONS)
    # The policy's stages, and the world's: `observe` (render) and `advance` (physics).
    timings_ms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    step: int = 0  # control step at which it was issued, and the observation taken
    steps: int = 0  # control steps until the next query
    # Simulated latency; None on clock `paused`, whose logs lack the fields up to `action_prefix`.
    latency: Latency | None = None
    actions_step: int = 0  # control step from which its actions could be executed
    free_step: int = 0  # control step from which the next query could be issued
    continued: int = 0  # steps that executed the previous chunk until the actions were available
    held: int = 0  # steps in which the robot held still
    skipped: int = 0  # leading actions of the chunk that were skipped
    # Actions executed until the next query, in order.
    spans: list[ActionSpan] = dataclasses.field(default_factory=list)
    blended: int = 0  # actions of the chunk that were averaged with the previous chunk
    # Actions towards which denoising was guided; None if it was not.
    action_prefix: ActionPrefix | None = None
    prompt: str | None = None  # the prompt, if texts were fed back into it; else None
    # Field to the text in it; none for empty fields.
    fed: Mapping[str, FedText] = dataclasses.field(default_factory=dict)
    prompt_cut: int = 0  # tokens of the prompt that did not fit in the policy's longest
    tokens: int = 0  # language tokens decoded
    requested: Sequence[TextRequest] = ()  # texts requested in it
    delivered: Sequence[Text] = ()  # texts finished in it and delivered before the episode ended
    dropped: Sequence[TextRequest] = ()  # requests dropped in it for lack of a slot
    # Control step to ground truth: at the query, at deliveries, and in a running episode with a clock at
    # every step until the next query. None if the world provides none.
    truths: dict[int, Truth | None] = dataclasses.field(default_factory=dict)
    truth_error: str | None = None  # why one of them is None, if the world failed to provide it
    # Texts finished too late to be delivered. This and the following fields are not logged.
    cancelled: int = 0
    executed: list[np.ndarray] = dataclasses.field(default_factory=list)  # the action of each control step
    # Its position (m) before the first of them and after each; empty if not known.
    end_effector: list[np.ndarray] = dataclasses.field(default_factory=list)
    observation: Observation = _NO_OBSERVATION  # the policy's input
    # Images between queries, for the video.
    pictures: list[Snapshot] = dataclasses.field(default_factory=list)
    success: bool = False  # whether the task was solved afterwards
    failed: bool = False  # whether it could no longer be solved afterwards
    progress: float = 0.0  # fraction of the task's criteria met afterwards

    @property
    def truth(self) -> Truth | None:
        """Ground truth at the observation; None if the world provides none."""
        return self.truths.get(self.step)

    def truth_on_delivery(self, text: Text) -> Truth | None:
        """Ground truth when a text of `delivered` was delivered; None if the world provides none."""
        return None if text.step is None else self.truths.get(text.step)

    def executed_spans(self) -> list[tuple[str, int, int]]:
        """First control step, and the one after the last, of each span, and whose actions it executed.

        `new` is this query's chunk, `continued` the previous one; `held` is none. In logs without spans all
        are new.
        """
        found, start = [], self.step
        for chunk, _, steps in self.spans or [ActionSpan(self.index, 0, self.steps)]:
            kind = "held" if chunk is None else "new" if chunk == self.index else "continued"
            found.append((kind, start, start + steps))
            start += steps
        return found

    def to_json(self) -> dict[str, Any]:
        """One line of the query log."""
        timing: dict[str, Any] = {}
        if self.latency is not None:
            timing = {
                "latency": dataclasses.asdict(self.latency),
                "actions_step": self.actions_step,
                "free_step": self.free_step,
                "continued": self.continued,
                "held": self.held,
                "skipped": self.skipped,
                "spans": self.spans,
                **({"blended": self.blended} if self.blended else {}),
            }
            if self.action_prefix is not None:
                timing["action_prefix"] = dataclasses.asdict(self.action_prefix)
        prompted: dict[str, Any] = {}
        if self.prompt is not None:
            fed = {field: dataclasses.asdict(text) for field, text in self.fed.items()}
            prompted = {"prompt": self.prompt, "feedback": fed, "prompt_cut": self.prompt_cut}
        finished = [dataclasses.asdict(text) for text in self.delivered]
        for record, text in zip(finished, self.delivered, strict=True):
            if text.step != self.step:
                record["truth"] = truth_to_json(self.truth_on_delivery(text))
        return {
            "query": self.index,
            "step": self.step,
            "steps": self.steps,
            "timings_ms": {stage: round(milliseconds, 4) for stage, milliseconds in self.timings_ms.items()},
            **timing,
            **prompted,
            "tokens": self.tokens,
            "actions": self.actions.tolist(),
            "requested": [dataclasses.asdict(request) for request in self.requested],
            "finished": finished,
            "dropped": [dataclasses.asdict(request) for request in self.dropped],
            "truth": truth_to_json(self.truth),
            **({} if self.truth_error is None else {"truth_error": self.truth_error}),
        }


def delivery_step(text: Text) -> int:
    """Control step at which a delivered text was delivered."""
    assert text.step is not None
    return text.step


def read_queries(folder: RunFolder, key: EpisodeKey) -> list[QueryRecord]:
    """The queries of one episode in order, none without a query log; a damaged line is a UsageError."""
    path, queries = folder.queries_path(key), []
    for number, record in enumerate(read_json_lines(path), start=1):
        try:
            queries.append(_parse_query(record))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, UsageError) as error:
            raise UsageError(f"{path}, line {number} is not a query: {error!r}") from None
    return queries


_COUNTS = ("steps", "continued", "held", "skipped", "blended", "prompt_cut", "tokens")
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
