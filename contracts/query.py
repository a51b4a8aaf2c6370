"""The record of a query: one policy call and the control steps until the next one."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.latency import Latency
from contracts.observation import ActionPrefix, Observation
from contracts.text import Text, TextRequest
from contracts.truth import Truth


class ActionSpan(NamedTuple):
    """Consecutive control steps that execute one chunk, or hold still."""

    chunk: int | None  # the query whose actions are executed; None while holding
    first: int  # index of the first action in its chunk
    steps: int  # number of control steps


class Snapshot(NamedTuple):
    """Image of a camera at a control step between two queries, for the video only."""

    step: int
    camera: str
    image: NDArray[np.uint8]  # [height, width, 3]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedText:
    """A text in the prompt of a query."""

    text: str  # as it stands there
    step: int | None = None  # control step at which it was delivered; None for a constant
    observed_step: int | None = None  # control step of the observation that it describes; None for a constant
    cut: int = 0  # characters that were cut from its end


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuerySchedule:
    """The control steps of a query. On clock `paused` its actions are available, and it is free, at once."""

    index: int = 0  # number of the query in the episode
    step: int = 0  # control step at which it was issued, and the observation taken
    steps: int = 0  # control steps until the next query
    actions_step: int = 0  # control step from which its actions could be executed
    free_step: int = 0  # control step from which the next query could be issued
    continued: int = 0  # steps that executed the previous chunk until the actions were available
    idle: int = 0  # steps in which the robot held still
    skipped: int = 0  # leading actions of the chunk that were skipped


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryExecution:
    """What happened in the control steps of a query."""

    spans: Sequence[ActionSpan] = ()  # actions executed until the next query, in order
    blended: int = 0  # actions of the chunk that were averaged with the previous chunk
    # Control step to ground truth: at the query, at deliveries, and in a running episode with a clock at
    # every step until the next query. None if the world provides none.
    truths: Mapping[int, Truth | None] = dataclasses.field(default_factory=dict)
    truth_error: str | None = None  # why one of them is None, if the world failed to provide it
    # The following fields are not logged.
    executed: Sequence[NDArray[np.float64]] = ()  # the action of each control step
    # Its position (m) before the first of them and after each; empty if not known.
    end_effector: Sequence[NDArray[np.float64]] = ()
    pictures: Sequence[Snapshot] = ()  # images between queries, for the video
    success: bool = False  # whether the task was solved afterwards
    failed: bool = False  # whether it could no longer be solved afterwards


_NO_ACTIONS = np.empty((0, 0))
_NO_OBSERVATION = Observation(images={}, state=np.empty(0), language="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryRecord(QuerySchedule, QueryExecution):
    """One policy call and the control steps until the next one."""

    # The chunk of actions [horizon, action]; NaN where the log has null.
    actions: NDArray[np.float64] = dataclasses.field(default_factory=lambda: _NO_ACTIONS)
    # The policy's stages, and the world's: `observe` (render) and `advance` (physics).
    timings_ms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # Simulated latency; None on clock `paused`, whose logs lack what follows from one: the steps of arrival,
    # spans, and `action_prefix`.
    latency: Latency | None = None
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
    # The following fields are not logged.
    cancelled: int = 0  # texts finished too late to be delivered
    observation: Observation = _NO_OBSERVATION  # the policy's input
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

        `new` is this query's chunk, `continued` the previous one; `idle` is none. In logs without spans all
        are new.
        """
        found, start = [], self.step
        for chunk, _, steps in self.spans or [ActionSpan(self.index, 0, self.steps)]:
            kind = "idle" if chunk is None else "new" if chunk == self.index else "continued"
            found.append((kind, start, start + steps))
            start += steps
        return found
