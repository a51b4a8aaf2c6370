"""Which texts are decoded when: plain Python over integers, no JAX, no clock.

A frame is planned, run by somebody else, and committed with what came back. A request is given its slot at
birth, since its prefix lives there; it waits in it until a row of the decode batch is free. The slots are
therefore the queue, and its bound.
"""

import dataclasses
import enum
import itertools
from collections.abc import Mapping, Sequence

from configs.errors import UsageError
from oxygen.plan import Birth, Committed, Ended, Plan, Request, Stretch


class Mode(enum.StrEnum):
    """How the language beside the actions is scheduled."""

    ACTIONS = "actions"
    """No language: the floor for latency, the reference for actions."""
    ISOLATED = "isolated"
    """Every request has its own prefill and runs to its end, one by one, before the query returns."""
    SHARED = "shared"
    """All requests share the prefill of the actions and run to their end, in one batch, before it returns."""
    UNIFIED = "unified"
    """All requests share it, and every frame decodes a few tokens of all those in progress, in one batch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arrivals:
    """What the scheduler knows of a language task.

    Attributes:
        every_queries: A request is born in queries 0, n, 2n, …
        max_tokens: A text ends after so many tokens.
        priority: The larger is given a row first.
        stop_token: A text ends with it, if it comes.
    """

    every_queries: int
    max_tokens: int
    priority: int
    stop_token: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The sizes within which requests are scheduled.

    Attributes:
        slots: Places in the KV pool, hence requests alive at once.
        rows: Requests decoded in one batch.
        tokens_per_frame: Decode steps in a frame of mode `unified`.
    """

    slots: int
    rows: int
    tokens_per_frame: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise UsageError(f"{field.name} is {getattr(self, field.name)}; it must be at least 1")


class Scheduler:
    """Requests of one stream of queries, and the slots they live in."""

    def __init__(self, *, mode: Mode, arrivals: Sequence[Arrivals], limits: Limits) -> None:
        self._mode = mode
        self._arrivals = () if mode is Mode.ACTIONS else tuple(arrivals)
        self._limits = limits
        self.reset()

    def reset(self) -> None:
        """Begin an episode: no request, every slot free, ids from 0."""
        self._alive: list[Request] = []  # in order of birth
        self._free = list(range(self._limits.slots))
        self._ids = itertools.count()

    @property
    def alive(self) -> tuple[Request, ...]:
        """Requests that have not ended, oldest first."""
        return tuple(self._alive)

    @property
    def free_slots(self) -> int:
        """Slots that no request holds."""
        return len(self._free)

    def plan(self, query: int) -> Plan:
        """Admit what is due in `query`, and say what the frame decodes."""
        dropped: list[tuple[int, int, int]] = []
        born: list[tuple[int, int]] = []
        births: list[Birth] = []
        for task, arrival in enumerate(self._arrivals):
            if query % arrival.every_queries == 0:
                request_id = next(self._ids)
                born.append((task, request_id))
                births += self._admit(task, request_id, query, dropped)
        alive = {request.request_id for request in self._alive}
        births = [birth for birth in births if birth.request_id in alive]
        stretches = tuple(self._stretches(births))
        return Plan(query=query, born=tuple(born), dropped=tuple(dropped), stretches=stretches)

    def commit(self, written: Mapping[int, Sequence[int]]) -> Committed:
        """Take in what decoding has brought and free the slots of the requests that ended.

        Args:
            written: Slot to all tokens written there since its request was born.
        """
        decoded, ended = 0, []
        for request in self._alive:
            if request.slot in written:
                decoded += self._take(request, written[request.slot])
        for request in [request for request in self._alive if self._has_ended(request)]:
            self._release(request)
            ended.append(self._farewell(request))
        return Committed(decoded=decoded, ended=tuple(ended))

    def cancel(self) -> tuple[Request, ...]:
        """Give up every request alive, as at the end of an episode, and return them."""
        cancelled = self.alive
        for request in cancelled:
            self._release(request)
        return cancelled

    def finished(self, slot: int, tokens: Sequence[int]) -> bool:
        """Whether a text that reads `tokens` so far has ended, if it lives in `slot`."""
        request = next(request for request in self._alive if request.slot == slot)
        stop = self._arrivals[request.task].stop_token
        return len(tokens) >= request.limit or stop in tokens

    def _admit(
        self, task: int, request_id: int, query: int, dropped: list[tuple[int, int, int]]
    ) -> list[Birth]:
        """Find a slot: a free one, else that of the oldest waiting request of the same task."""
        if not self._free:
            waiting = [request for request in self._alive if request.task == task and not request.decoding]
            if not waiting:
                dropped.append((task, request_id, query))
                return []
            self._release(waiting[0])
            dropped.append((task, waiting[0].request_id, waiting[0].born_query))
        slot = self._free.pop(0)
        limit = self._arrivals[task].max_tokens
        self._alive.append(
            Request(request_id=request_id, task=task, born_query=query, slot=slot, limit=limit)
        )
        return [Birth(request_id=request_id, task=task, slot=slot)]

    def _stretches(self, births: Sequence[Birth]) -> list[Stretch]:
        if self._mode is Mode.UNIFIED:
            return self._one_frame(births)
        size = 1 if self._mode is Mode.ISOLATED else self._limits.rows
        own_prefill = self._mode is Mode.ISOLATED
        return [
            self._to_the_end(births[start : start + size], own_prefill=own_prefill)
            for start in range(0, len(births), size)
        ]

    def _to_the_end(self, births: Sequence[Birth], *, own_prefill: bool) -> Stretch:
        return Stretch(
            births=tuple(births),
            own_prefill=own_prefill,
            rows=tuple(birth.slot for birth in births),
            steps=max(self._arrivals[birth.task].max_tokens for birth in births),
            to_the_end=True,
        )

    def _one_frame(self, births: Sequence[Birth]) -> list[Stretch]:
        self._give_rows()
        running = [request for request in self._alive if request.decoding]
        if not running:
            return []
        longest = max(request.limit - len(request.tokens) for request in running)
        return [
            Stretch(
                births=tuple(births),
                own_prefill=False,
                rows=tuple(request.slot for request in running),
                steps=min(self._limits.tokens_per_frame, longest),
                to_the_end=False,
            )
        ]

    def _give_rows(self) -> None:
        """Free rows go to the highest priority; every frame of waiting raises a request's by one."""
        waiting = [request for request in self._alive if not request.decoding]
        free = self._limits.rows - (len(self._alive) - len(waiting))
        waiting.sort(key=lambda request: (-self._urgency(request), request.request_id))
        for request in waiting[:free]:
            request.decoding = True
        for request in waiting[free:]:
            request.waited += 1

    def _urgency(self, request: Request) -> int:
        return self._arrivals[request.task].priority + request.waited

    def _take(self, request: Request, written: Sequence[int]) -> int:
        """Keep the new tokens up to the limit and the stop token; returns how many."""
        before = len(request.tokens)
        tokens = list(written[: request.limit])
        stop = self._arrivals[request.task].stop_token
        request.tokens = tokens[: tokens.index(stop) + 1] if stop in tokens else tokens
        return len(request.tokens) - before

    def _has_ended(self, request: Request) -> bool:
        return self._stopped(request) or len(request.tokens) >= request.limit

    def _stopped(self, request: Request) -> bool:
        return bool(request.tokens) and request.tokens[-1] == self._arrivals[request.task].stop_token

    def _release(self, request: Request) -> None:
        self._alive.remove(request)
        self._free.append(request.slot)

    def _farewell(self, request: Request) -> Ended:
        stopped = self._stopped(request)
        return Ended(
            request_id=request.request_id,
            task=request.task,
            born_query=request.born_query,
            tokens=tuple(request.tokens[:-1] if stopped else request.tokens),
            decoded=len(request.tokens),
            stopped=stopped,
        )
