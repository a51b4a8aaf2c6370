"""Schedules the text requests of one robot, and their tokens per engine step: plain Python, no JAX, no clock.

The scheduler plans a step, the engine runs it, and the scheduler commits the decoded tokens. Several robots
are several schedulers, whose jobs `joined` puts together. A request gets its slot of the KV pool on arrival,
since its prefix is stored there, and waits for a row of the decode batch: the slots are the queue, and bound
its length.

Order. In mode `unified`, the first requests of the queue get the rows of a step. The queue is in order of
arrival, with a task's priority as a head start in steps. A request without a row keeps its KV slot and
continues later. In mode `interleaved`, all requests are decoded in this order, one at a time.

No starvation. Only requests that arrive within D steps of a request can overtake it (D: the largest priority
minus its own). At most S - 1 others hold slots; each needs a row for at most L steps (the longest limit over
the tokens of a step), and R of them run at a time. So a request that is not dropped finishes within
D + (S - 1) L / R + L steps of its arrival.

Full pool. One slot is reserved for every task without an active request. A new request that finds no free
slot replaces the oldest waiting request of its task, which is dropped, and inherits the last place of its
queue. If none waits, the oldest request of the longest other queue (at least 2 waiting) is dropped and the
others of that queue move up. Otherwise the new request itself is dropped. Running requests are never dropped.
Since places are inherited, every task that keeps being requested finishes a text within the same bound.
"""

import dataclasses
import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from contracts.errors import UsageError
from contracts.mode import Mode
from oxygen.serving.language import LanguageTask
from oxygen.serving.requests import DecodeJob, Request, RequestState, StepPlan

_RESERVE = 0.1


@dataclasses.dataclass(frozen=True)
class FixedTokens:
    """The same number of tokens per request in every engine step."""

    tokens: int = 5

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UsageError(f"tokens per frame is {self.tokens}; it must be at least 1")

    def steps(self, *, spent_ms: float, step_ms: float | None) -> int:
        """Always the same number."""
        del spent_ms, step_ms
        return self.tokens


@dataclasses.dataclass(frozen=True)
class Deadline:
    """As many decode steps as fit between the actions and the deadline, by measured costs.

    Decode steps are queued while the actions are computed, so their completion is estimated from earlier
    queries. A tenth of the time is left free, since measured costs and times are means.
    """

    ms: float  # time from one query to the next, milliseconds

    def __post_init__(self) -> None:
        if not 0 < self.ms < math.inf:
            raise UsageError(f"the deadline is {self.ms} ms; it must be a number above 0")

    def steps(self, *, spent_ms: float, step_ms: float | None) -> int:
        """Decode steps to queue behind the actions; at least 1, so that every text ends.

        `spent_ms` is the expected time from the query's arrival until its actions are ready, `step_ms` the
        measured time of a decode step, None before the first measurement.
        """
        if not step_ms:
            return 1
        left = self.ms * (1 - _RESERVE) - spent_ms
        return max(1, math.floor(left / step_ms))


Budget: TypeAlias = FixedTokens | Deadline
"""Decides how many decode steps are queued behind the actions."""


class Scheduler:
    """Schedules the text requests of one robot.

    Attributes:
        seed: The episode's seed.
        width: The most rows of a decode job.
    """

    def __init__(
        self, *, mode: Mode, tasks: Sequence[LanguageTask], slots: int, rows: int, robot: int = 0
    ) -> None:
        """Start with every slot free, for tokenized tasks; see `EngineConfig`. Mode `actions` ignores them.

        The robot has the slots from `robot` × `slots` on. Fewer slots than language tasks are refused.
        """
        self._mode = mode
        self._tasks = () if mode is Mode.ACTIONS else tuple(tasks)
        if slots < len(self._tasks):
            raise UsageError(f"{slots} slots for {len(self._tasks)} language tasks; give each at least one")
        self._robot = robot
        self._free = deque(range(robot * slots, (robot + 1) * slots))
        self._active: list[Request] = []  # in order of arrival
        self._steps = 0
        self._serials = itertools.count()
        self._ids = itertools.count()
        self.seed = 0
        match mode:
            case Mode.UNIFIED:
                self.width = rows
            case Mode.SHARED:
                at_once = sum(task.arrivals.within(1) for task in self._tasks)
                self.width = max(1, min(rows, at_once))
            case _:
                self.width = 1

    @property
    def active(self) -> tuple[Request, ...]:
        """Waiting and running requests, oldest first."""
        return tuple(self._active)

    def reset(self, seed: int = 0) -> None:
        """Start an episode: cancel the requests and count request ids from 0."""
        self.cancel()
        self._ids = itertools.count()
        self.seed = seed

    def plan(self, query: int) -> StepPlan:
        """Admit the requests that are due in a query and plan its decode jobs."""
        requested = tuple(self._requested(query))
        dropped = tuple(loser for request in requested if (loser := self._admit(request)) is not None)
        new = [request for request in requested if request.state is RequestState.WAITING]
        jobs = tuple(self._jobs(new))
        for job in jobs:
            for request in job.rows:
                request.state = RequestState.RUNNING
        self._steps += 1
        return StepPlan(requested=requested, dropped=dropped, jobs=jobs)

    def commit(self, written: Mapping[int, Sequence[int]]) -> dict[Request, int]:
        """Commit the decoded tokens of the planned step; finished requests free their slots.

        Takes slot to all tokens decoded there since its request started, and returns request to its number of
        new tokens, if any.
        """
        new = {request: request.take(written.get(request.slot, ())) for request in self._active}
        for request in self.active:
            if request.is_complete(request.tokens):
                self._release(request, RequestState.FINISHED)
        return {request: count for request, count in new.items() if count}

    def cancel(self) -> tuple[Request, ...]:
        """Cancel and return the active requests, as at the end of an episode."""
        cancelled = self.active
        for request in cancelled:
            self._release(request, RequestState.CANCELLED)
        return cancelled

    def _requested(self, query: int) -> Iterator[Request]:
        for index, task in enumerate(self._tasks):
            for ordinal, limit in enumerate(task.arrivals.due(self.seed, query)):
                yield Request(
                    robot=self._robot,
                    task=index,
                    query=query,
                    suffix=task.suffix,
                    sampling=task.sampling,
                    seed=self.seed,
                    ordinal=ordinal,
                    request_id=next(self._ids),
                    limit=limit or task.max_tokens,
                    stop_token=task.stop_token,
                    order=(self._steps - task.priority, next(self._serials)),
                )

    def _admit(self, request: Request) -> Request | None:
        """Assign a slot by the rules above; returns the request that is dropped, if any."""
        loser = None
        reserved = len(self._tasks) - len({request.task, *(other.task for other in self._active)})
        if len(self._free) <= reserved:
            loser = self._make_room(request)
            if loser is request:
                return request
        request.slot = self._free.popleft()
        self._active.append(request)
        return loser

    def _make_room(self, request: Request) -> Request:
        """Drop a waiting request, whose place in the queue others inherit; or else `request` itself."""
        waiting: dict[int, list[Request]] = {}  # by task, oldest first
        for other in self._active:
            if other.state is RequestState.WAITING:
                waiting.setdefault(other.task, []).append(other)
        same_task = waiting.pop(request.task, [])
        queue = same_task or max((queue for queue in waiting.values() if len(queue) > 1), key=len, default=[])
        if not queue:
            request.state = RequestState.DROPPED
            return request
        places = [other.order for other in queue]
        for other, place in zip(queue[1:], places, strict=False):  # they move up one place
            other.order = place
        if same_task:
            request.order = places[-1]
        self._release(queue[0], RequestState.DROPPED)
        return queue[0]

    def _jobs(self, new: Sequence[Request]) -> Iterator[DecodeJob]:
        in_order = sorted(self._active, key=lambda request: request.order)
        match self._mode:
            case Mode.UNIFIED:
                if rows := in_order[: self.width]:  # those without a row are forked all the same
                    yield _job(rows, new=new, batch=self.width)
            case Mode.INTERLEAVED:
                for request in in_order:
                    fresh = [request] if request.state is RequestState.WAITING else []
                    yield _job([request], new=fresh, batch=1, own_prefill=True)
            case Mode.SHARED:
                for start in range(0, len(new), self.width):
                    rows = new[start : start + self.width]
                    yield _job(rows, new=rows, batch=len(rows), to_the_end=True)
            case _:
                for request in new:
                    yield _job([request], new=[request], batch=1, own_prefill=True, to_the_end=True)

    def _release(self, request: Request, state: RequestState) -> None:
        request.state = state
        self._active.remove(request)
        self._free.append(request.slot)


def _job(
    rows: Sequence[Request],
    *,
    new: Sequence[Request],
    batch: int,
    own_prefill: bool = False,
    to_the_end: bool = False,
) -> DecodeJob:
    """A job with as many steps as its longest text needs."""
    return DecodeJob(
        new=tuple(new),
        rows=tuple(rows),
        own_prefill=own_prefill,
        batch=batch,
        steps=max(request.limit - len(request.tokens) for request in rows),
        to_the_end=to_the_end,
    )


def joined(plans: Iterable[StepPlan], *, robots: int, width: int) -> list[DecodeJob]:
    """The decode jobs of all robots' plans: the first of each robot together, then the second of each, ….

    With several robots, every batch has `width` rows for each of them, so that its size does not depend on
    which of them have a query.
    """
    rounds = itertools.zip_longest(*(plan.jobs for plan in plans))
    return [_join([job for job in jobs if job is not None], robots, width) for jobs in rounds]


def _join(jobs: Sequence[DecodeJob], robots: int, width: int) -> DecodeJob:
    return DecodeJob(
        new=tuple(request for job in jobs for request in job.new),
        rows=tuple(request for job in jobs for request in job.rows),
        own_prefill=jobs[0].own_prefill,
        batch=jobs[0].batch if robots == 1 else robots * width,
        steps=max(job.steps for job in jobs),
        to_the_end=jobs[0].to_the_end,
    )
