"""One robot's episode as the policy keeps it: its queries, its texts in progress, the reply it is owed."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from oxygen.policy.reply import Reply, Tail
from oxygen.serving.engine import Acted, Settled
from oxygen.serving.language import TextBorn, TextFinished, TextTimes
from oxygen.serving.plan import Ended, Identity, Request
from oxygen.serving.work_clock import WorkClock
from oxygen.typing import Float64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """A robot's query that has its actions.

    Attributes:
        actions: The chunk, in the robot's units.
        came: When it came in, in seconds of the clock.
        ready: When the model's input was.
        acted: When the actions could be given to the caller.
        frame: The frame that served it.
    """

    actions: Float64[np.ndarray, "horizon action"]
    came: float
    ready: float
    acted: float
    frame: Acted


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Born:
    """When a request was born: in seconds of the clock, and in seconds worked."""

    at: float
    worked: float


class Robot:
    """What is known of one robot, from the beginning of its episode on."""

    def __init__(self, index: int, seed: int, tasks: tuple[str, ...], clock: WorkClock) -> None:
        self.index = index
        self._tasks = tasks
        self._clock = clock
        self.seed = seed % 2**64
        self.next_query = 0
        self._query: Query | None = None
        self._born: dict[int, _Born] = {}
        self._first_at: dict[int, float] = {}
        self._finished: list[TextFinished] = []
        self._dropped: list[TextBorn] = []
        self._tokens = 0
        self._reply: Reply | None = None

    def acted(self, query: Query) -> None:
        """Note that a query has its actions."""
        self._query = query
        self.next_query += 1
        born = _Born(at=query.came, worked=self._clock.at(query.came))
        self._born.update((identity.request_id, born) for identity in self._own(query.frame.plan.born))

    def settled(self, settled: Settled, texts: Mapping[Identity, str]) -> None:
        """Note what came of a frame; if it served a query of this robot, that is answered now.

        Args:
            settled: The frame.
            texts: What the requests that ended have written.
        """
        for identity in self._own(tuple(settled.first_at)):
            self._first_at[identity.request_id] = settled.first_at[identity]
        for ended in settled.committed.ended:
            if ended.identity.stream == self.index:
                self._finished.append(self._text(settled, ended, texts[ended.identity]))
        self._dropped += self._named(settled.plan.dropped)
        self._tokens += settled.committed.decoded.get(self.index, 0)
        if self._query is not None:
            self._reply = self._answered(self._query, settled)
            self._query = None

    def owed(self) -> Reply | None:
        """The reply to the last query, once."""
        reply, self._reply = self._reply, None
        return reply

    def tail(self, cancelled: tuple[Request, ...], compiles: int) -> Tail:
        """What is left at the end of the episode."""
        finished, dropped, tokens = self._collected()
        return Tail(
            cancelled=len(cancelled),
            requests=self._named(tuple(request.identity for request in cancelled)),
            reply=self.owed(),
            finished=finished,
            dropped=dropped,
            tokens=tokens,
            compiles_after_warm_up=compiles,
        )

    def _answered(self, query: Query, settled: Settled) -> Reply:
        finished, dropped, tokens = self._collected()
        return Reply(
            actions=query.actions,
            timings_ms=_timings_ms(query, settled.at),
            born=self._named(settled.plan.born),
            finished=finished,
            dropped=dropped,
            tokens=tokens,
            tokens_per_frame=query.frame.afforded.steps,
        )

    def _collected(self) -> tuple[tuple[TextFinished, ...], tuple[TextBorn, ...], int]:
        """Texts finished, requests dropped and tokens decoded since this was last asked."""
        collected = tuple(self._finished), tuple(self._dropped), self._tokens
        self._finished, self._dropped, self._tokens = [], [], 0
        return collected

    def _text(self, settled: Settled, ended: Ended, text: str) -> TextFinished:
        request_id = ended.identity.request_id
        born, ended_at = self._born.pop(request_id), settled.ended_at[ended.identity]
        return TextFinished(
            task=self._tasks[ended.identity.task],
            request_id=request_id,
            born_query=ended.identity.query,
            finished_query=self.next_query - 1,
            text=text,
            tokens=ended.decoded,
            reason="stop" if ended.stopped else "length",
            latency_ms=1e3 * (self._clock.at(ended_at) - born.worked),
            times=TextTimes(born_s=born.at, first_token_s=self._first_at.pop(request_id), ended_s=ended_at),
        )

    def _own(self, identities: tuple[Identity, ...]) -> tuple[Identity, ...]:
        return tuple(identity for identity in identities if identity.stream == self.index)

    def _named(self, identities: tuple[Identity, ...]) -> tuple[TextBorn, ...]:
        return tuple(
            TextBorn(task=self._tasks[identity.task], request_id=identity.request_id, query=identity.query)
            for identity in self._own(identities)
        )


def _timings_ms(query: Query, end: float) -> dict[str, float]:
    frame = query.frame
    seconds = {
        "preprocess": query.ready - query.came,
        "prefill": frame.prefilled - frame.begun,
        "denoise": frame.acted - frame.prefilled,
        "action": query.acted - query.came,
        "decode": end - query.acted,
        "frame": end - query.came,
    }
    return {stage: 1e3 * duration for stage, duration in seconds.items()}
