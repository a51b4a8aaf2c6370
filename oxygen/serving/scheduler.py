"""Schedules text requests, and their tokens per engine step: plain Python, no JAX, no clock.

The scheduler plans a step, the engine runs it, and the scheduler commits the decoded tokens. All robots share
one pool of slots and one decode batch. A request gets its slot on arrival, since its prefix is stored there,
and waits for a row of the decode batch: the slots are the queue, and bound its length.

Order. In mode `unified`, the first requests of the queue get the rows of a step. The queue is in order of
arrival, with a task's priority as a head start in steps. A request without a row keeps its KV slot and
continues later. In mode `interleaved`, all requests are decoded in this order, one of each robot at a time.

No starvation. Only requests that arrive within D steps of a request can overtake it (D: the largest priority
minus its own). At most S - 1 others hold slots; each needs a row for at most L steps (the longest limit over
the tokens of a step), and R of them run at a time. So a request that is not dropped finishes within
D + (S - 1) L / R + L steps of its arrival.

Full pool. One slot is reserved for every task of every robot without an active request. A new request that
finds no free slot replaces the oldest waiting request of the same task and robot, which is dropped, and
inherits the last place of its queue. If none waits, the oldest request of the longest other queue (at least 2
waiting) is dropped and the others of that queue move up. Otherwise the new request itself is dropped. Running
requests are never dropped. Since places are inherited, every task that a robot keeps requesting finishes a
text within the same bound.
"""

import dataclasses
import enum
import itertools
import math
from collections.abc import Container, Mapping, Sequence
from typing import TypeAlias

from contracts.errors import UsageError
from oxygen.serving.language import LanguageTask
from oxygen.serving.requests import DecodeJob, Request, RequestState, StepPlan

_RESERVE = 0.1


class Mode(enum.StrEnum):
    """How texts are scheduled beside the actions."""

    ACTIONS = "actions"
    """No texts: the baseline for latency and actions."""
    ISOLATED = "isolated"
    """Every request has its own prefill and is decoded to its end, one by one, before the next query."""
    INTERLEAVED = "interleaved"
    """Every request has its own prefill; each query decodes a few tokens of all of them, one by one."""
    SHARED = "shared"
    """Requests share the actions' prefill and are decoded to their end in one batch before the next query."""
    UNIFIED = "unified"
    """Requests share the actions' prefill; each query decodes a few tokens of all of them in one batch."""
    PARALLEL = "parallel"
    """As isolated, but in a second process that shares the device with the actions."""


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

        Args:
            spent_ms: Expected time from the query's arrival until its actions are ready.
            step_ms: Measured time of a decode step; None before the first measurement.
        """
        if not step_ms:
            return 1
        left = self.ms * (1 - _RESERVE) - spent_ms
        return max(1, math.floor(left / step_ms))


Budget: TypeAlias = FixedTokens | Deadline
"""Decides how many decode steps are queued behind the actions."""


class Scheduler:
    """Schedules the text requests of all robots."""

    def __init__(
        self,
        *,
        mode: Mode,
        tasks: Sequence[LanguageTask],
        slots: int,
        rows: int,
        robots: int = 1,
        independent: bool = False,
    ) -> None:
        """Start with every slot free, for tokenized tasks; see `EngineConfig`. Mode `actions` ignores them.

        Raises:
            UsageError: There are fewer slots than one for every language task of every robot.
        """
        self._mode = mode
        self._tasks = () if mode is Mode.ACTIONS else tuple(tasks)
        if slots < robots * len(self._tasks):
            raise UsageError(
                f"{slots} slots for {len(self._tasks)} language tasks of {robots} robots; "
                f"each task needs one for every robot, {robots * len(self._tasks)} at least"
            )
        self._rows = rows
        self._robots = robots
        self._independent = independent
        self._active: list[Request] = []  # in order of arrival
        self._slots, self._free = slots, list(range(slots))
        self._steps = [0] * robots  # of each robot, if robots are independent those with its queries
        self._serials = itertools.count()
        self._ids = [itertools.count() for _ in range(robots)]
        self._seeds = [0] * robots

    @property
    def active(self) -> tuple[Request, ...]:
        """Waiting and running requests, oldest first."""
        return tuple(self._active)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The episode seed of every robot."""
        return tuple(self._seeds)

    def reset(self, robot: int, seed: int = 0) -> None:
        """Start an episode of a robot: cancel its requests and count request ids from 0."""
        self.cancel(robot)
        self._ids[robot] = itertools.count()
        self._seeds[robot] = seed

    def plan(self, queries: Mapping[int, int]) -> StepPlan:
        """Admit the requests that are due and plan the decode jobs.

        Args:
            queries: Robot to the number of its query. A robot without a query requests nothing; its texts
                continue, unless robots are independent.
        """
        requested = [
            Request(
                robot=robot,
                task=index,
                query=query,
                suffix=task.suffix,
                sampling=task.sampling,
                seed=self._seeds[robot],
                ordinal=ordinal,
                request_id=next(self._ids[robot]),
                limit=limit or task.max_tokens,
                stop_token=task.stop_token,
                order=(self._steps[robot] - task.priority, next(self._serials)),
            )
            for robot, query in queries.items()
            for index, task in enumerate(self._tasks)
            for ordinal, limit in enumerate(task.arrivals.due(0 if self._independent else robot, query))
        ]
        dropped = tuple(loser for request in requested for loser in self._admit(request))
        new = [request for request in requested if request.state is RequestState.WAITING]
        jobs = tuple(self._jobs(new, queries))
        for job in jobs:
            for request in job.rows:
                request.state = RequestState.RUNNING
        for robot in range(self._robots):
            self._steps[robot] += not self._independent or robot in queries
        return StepPlan(requested=tuple(requested), dropped=dropped, jobs=jobs)

    def commit(self, written: Mapping[int, Sequence[int]]) -> dict[Request, int]:
        """Commit the decoded tokens of the planned step; finished requests free their slots.

        Args:
            written: Slot to all tokens decoded there since its request started.

        Returns:
            Request to its number of new tokens, if any.
        """
        new = {request: request.take(written.get(request.slot, ())) for request in self._active}
        for request in self.active:
            if request.is_complete(request.tokens):
                self._release(request, RequestState.FINISHED)
        return {request: count for request, count in new.items() if count}

    def cancel(self, robot: int) -> tuple[Request, ...]:
        """Cancel and return a robot's active requests, as at the end of its episode."""
        cancelled = tuple(request for request in self._active if request.robot == robot)
        for request in cancelled:
            self._release(request, RequestState.CANCELLED)
        return cancelled

    def _admit(self, request: Request) -> list[Request]:
        """Assign a slot by the rules above; returns the dropped request, if any."""
        dropped = []
        robots = 1 if self._independent else self._robots  # that share slots
        rivals = [each for each in self._active if not self._independent or each.robot == request.robot]
        queues = {other.queue for other in rivals} | {request.queue}
        reserved = robots * len(self._tasks) - len(queues)  # for other queues, a slot each
        if self._slots * robots // self._robots - len(rivals) <= reserved:
            waiting: dict[tuple[int, int], list[Request]] = {}  # oldest first
            for other in rivals:
                if other.state is RequestState.WAITING:
                    waiting.setdefault(other.queue, []).append(other)
            own = waiting.pop(request.queue, [])
            others = [queue for queue in waiting.values() if len(queue) > 1]
            queue = own or max(others, key=len, default=[])
            if not queue:
                request.state = RequestState.DROPPED
                return [request]
            self._release(queue[0], RequestState.DROPPED)
            dropped = [queue[0]]
            places = [each.order for each in queue]
            for other, place in zip(queue[1:], places, strict=False):  # they move up one place
                other.order = place
            if own:
                request.order = places[-1]
        request.slot = self._free.pop(0)
        self._active.append(request)
        return dropped

    def _jobs(self, new: Sequence[Request], queries: Container[int]) -> list[DecodeJob]:
        match self._mode:
            case Mode.UNIFIED:
                rows = self._going(queries)
                if self._independent:
                    rows = [
                        row
                        for part in _some_of_each_robot(rows, self._rows // self._robots)[:1]
                        for row in part
                    ]
                rows = rows[: self._rows]
                return [_job(rows, batch=self._rows, own_prefill=False, new=new)] if rows else []
            case Mode.INTERLEAVED:
                rounds = _some_of_each_robot(self._going(queries), 1)
                return [_job(part, batch=self._robots, own_prefill=True) for part in rounds]
            case Mode.SHARED if self._independent and self._robots > 1:
                requested = sum(task.arrivals.within(1) for task in self._tasks)
                share = max(1, min(requested, self._rows // self._robots))
                size, rounds = self._robots * share, _some_of_each_robot(new, share)
                return [_job(part, batch=size, own_prefill=False, to_the_end=True) for part in rounds]
            case Mode.SHARED:
                size = self._rows
                parts = [new[start : start + size] for start in range(0, len(new), size)]
                return [_job(part, batch=len(part), own_prefill=False, to_the_end=True) for part in parts]
            case _:
                rounds = _some_of_each_robot(new, 1)
                return [_job(part, batch=self._robots, own_prefill=True, to_the_end=True) for part in rounds]

    def _going(self, queries: Container[int]) -> list[Request]:
        """The requests that this step may decode, in the order of the queue."""
        going = [each for each in self._active if not self._independent or each.robot in queries]
        return sorted(going, key=lambda request: request.order)

    def _release(self, request: Request, state: RequestState) -> None:
        request.state = state
        self._active.remove(request)
        self._free.append(request.slot)


def _some_of_each_robot(requests: Sequence[Request], count: int) -> list[list[Request]]:
    """Every robot's first `count` requests, then every robot's next ones, and so on."""
    of_robot: dict[int, list[Request]] = {}
    for request in requests:
        of_robot.setdefault(request.robot, []).append(request)
    longest = max(map(len, of_robot.values()), default=0)
    return [
        [request for own in of_robot.values() for request in own[start : start + count]]
        for start in range(0, longest, count)
    ]


def _job(
    rows: Sequence[Request],
    *,
    batch: int,
    own_prefill: bool,
    to_the_end: bool = False,
    new: Sequence[Request] | None = None,
) -> DecodeJob:
    """A job with as many steps as its longest text needs; `new` is its waiting requests if None."""
    if new is None:
        new = [request for request in rows if request.state is RequestState.WAITING]
    return DecodeJob(
        new=tuple(new),
        rows=tuple(rows),
        own_prefill=own_prefill,
        batch=batch,
        steps=max(request.limit - len(request.tokens) for request in rows),
        to_the_end=to_the_end,
    )
