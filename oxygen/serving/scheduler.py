"""Decides which texts are decoded when: plain Python over integers, no JAX, no clock.

A step is planned, run by the engine, and committed with what was written. All robots share one pool of slots
and one batch of rows. A request gets its slot when it arrives, since its prefix lives there, and waits in it
for a row of the decode batch. So the slots are the queue, and bound its length.

Order. All active requests stand in one line; in mode `unified` the first of them get the rows of a step. The
line is in order of arrival, with a task's priority counting as so many steps of head start. So a request
waits only while every row is held by requests that came before it, or came later by fewer steps than their
priority is higher. A request that is left out of a step loses nothing but time: its keys and values stay in
its slot.

No starvation. Only requests that arrive within D steps of a request can get ahead of it (D: the largest
priority less its own). Then S - 1 others hold slots; each needs a row for at most L steps (the longest limit
over the tokens of a step), and R of them have one while it waits. So a request that is not dropped has ended
D + (S - 1) L / R + L steps after its arrival.

Full pool. One slot is reserved for every task of every robot that has no active request. A new request that
finds no other slot replaces the oldest waiting request of the same task and robot, in the pool and in the
line; that one is dropped. If none waits, it takes a slot from the longest other queue of one task and robot
(at least 2 waiting): the oldest of that queue is dropped, and the others move up in the line. Otherwise the
new request itself is dropped. A running request is never dropped. Since places in the line are inherited,
every task that a robot keeps requesting finishes a text within the same bound.
"""

import enum
import itertools
from collections.abc import Container, Iterable, Mapping, Sequence

from configs.errors import UsageError
from oxygen.serving.language import TokenizedTask
from oxygen.serving.requests import DecodeJob, Request, RequestState, StepPlan


class Mode(enum.StrEnum):
    """How the language beside the actions is scheduled."""

    ACTIONS = "actions"
    """No language: the floor for latency, the reference for actions."""
    ISOLATED = "isolated"
    """Every request has its own prefill; they run to their end, one by one, before the next query."""
    SHARED = "shared"
    """All requests share the actions' prefill; they run to their end, in one batch, before the next query."""
    UNIFIED = "unified"
    """All requests share it; every query decodes a few tokens of all requests in progress, in one batch."""
    PARALLEL = "parallel"
    """As isolated, but in a second process that shares the device with the actions."""


def check_slots(*, slots: int, tasks: int, robots: int) -> None:
    """Refuse fewer slots than one for every language task of every robot.

    Raises:
        UsageError: Names both numbers.
    """
    if slots < robots * tasks:
        raise UsageError(
            f"{slots} slots for {tasks} language tasks of {robots} robots; "
            f"each task needs one for every robot, {robots * tasks} at least"
        )


class Scheduler:
    """The active requests of all robots, and their slots."""

    def __init__(
        self,
        *,
        mode: Mode,
        tasks: Sequence[TokenizedTask],
        slots: int,
        rows: int,
        robots: int = 1,
        independent: bool = False,
    ) -> None:
        """Start with every slot free.

        Args:
            mode: How language is scheduled; `actions` leaves the tasks alone.
            tasks: The language tasks.
            slots: Places in the KV pool, hence requests that can be active at once.
            rows: Requests decoded in one batch.
            robots: Robots that share them.
            independent: Whether texts wait while their robot sits out, see `EngineConfig`.
        """
        self._mode = mode
        self._tasks = () if mode is Mode.ACTIONS else tuple(tasks)
        check_slots(slots=slots, tasks=len(self._tasks), robots=robots)
        self._rows = rows
        self._robots = robots
        self._independent = independent
        self._active: list[Request] = []  # in order of arrival
        self._free = list(range(slots))
        self._step = 0
        self._serials = itertools.count()
        self._ids = [itertools.count() for _ in range(robots)]
        self._seeds = [0] * robots

    @property
    def active(self) -> tuple[Request, ...]:
        """Requests that wait or run, oldest first."""
        return tuple(self._active)

    @property
    def free_slots(self) -> int:
        """Slots that no request holds."""
        return len(self._free)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The episode seed of every robot."""
        return tuple(self._seeds)

    def reset(self, robot: int, seed: int = 0) -> None:
        """Begin an episode of a robot: its requests are cancelled, its request ids count from 0."""
        self.cancel(robot)
        self._ids[robot] = itertools.count()
        self._seeds[robot] = seed

    def plan(self, queries: Mapping[int, int]) -> StepPlan:
        """Admit the requests that are due, and say what the step decodes.

        Args:
            queries: Robot to the number of its query. A robot that sits out requests nothing; its texts
                go on, unless robots are independent.
        """
        requested = tuple(self._due(queries))
        dropped = tuple(loser for request in requested for loser in self._admit(request))
        new = [request for request in requested if request.state is RequestState.WAITING]
        jobs = tuple(self._jobs(new, queries))
        for job in jobs:
            for request in job.rows:
                request.state = RequestState.RUNNING
        self._step += 1
        return StepPlan(requested=requested, dropped=dropped, jobs=jobs)

    def commit(self, written: Mapping[int, Sequence[int]]) -> dict[Request, int]:
        """Take in what the planned step has written; requests that have ended free their slots.

        Args:
            written: Slot to all tokens written there since its request began.

        Returns:
            The number of new tokens of every request that has any.
        """
        new = {request: request.take(written.get(request.slot, ())) for request in self._active}
        for request in self.active:
            if request.is_over(request.tokens):
                self._release(request, RequestState.FINISHED)
        return {request: count for request, count in new.items() if count}

    def cancel(self, robot: int) -> tuple[Request, ...]:
        """Cancel a robot's active requests, as at the end of its episode, and return them."""
        cancelled = tuple(request for request in self._active if request.robot == robot)
        for request in cancelled:
            self._release(request, RequestState.CANCELLED)
        return cancelled

    def _due(self, queries: Mapping[int, int]) -> Iterable[Request]:
        for robot, query in queries.items():
            for index, task in enumerate(self._tasks):
                for ordinal, limit in enumerate(task.arrivals.due(0 if self._independent else robot, query)):
                    yield Request(
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
                        order=(self._step - task.priority, next(self._serials)),
                    )

    def _admit(self, request: Request) -> list[Request]:
        """Give a request a slot by the rules above; returns the request that was dropped for it, if any."""
        dropped = []
        if not self._has_room(request):
            own, longest = self._waiting(request)
            waiting = own or longest
            if not waiting:
                request.state = RequestState.DROPPED
                return [request]
            self._release(waiting[0], RequestState.DROPPED)
            dropped = [waiting[0]]
            last = _move_up(waiting)
            request.order = last if own else request.order
        request.slot = self._free.pop(0)
        self._active.append(request)
        return dropped

    def _has_room(self, request: Request) -> bool:
        """Whether a slot is free that is not reserved for another queue."""
        queues = {other.queue for other in self._active} | {request.queue}
        reserved = self._robots * len(self._tasks) - len(queues)
        return len(self._free) > reserved

    def _waiting(self, request: Request) -> tuple[list[Request], list[Request]]:
        """Waiting requests of the same task and robot, and the longest other queue (≥ 2); oldest first."""
        queues: dict[tuple[int, int], list[Request]] = {request.queue: []}
        for other in self._active:
            if other.state is RequestState.WAITING:
                queues.setdefault(other.queue, []).append(other)
        own = queues.pop(request.queue)
        others = [queue for queue in queues.values() if len(queue) > 1]
        return own, max(others, key=len, default=[])

    def _jobs(self, new: Sequence[Request], queries: Container[int]) -> list[DecodeJob]:
        match self._mode:
            case Mode.UNIFIED:
                return self._continuous(new, queries)
            case Mode.SHARED if self._independent and self._robots > 1:
                share = self._together
                rounds = _some_of_each_robot(new, share)
                return [_to_the_end(part, batch=self._robots * share, own_prefill=False) for part in rounds]
            case Mode.SHARED:
                size = self._rows
                parts = [new[start : start + size] for start in range(0, len(new), size)]
                return [_to_the_end(part, batch=len(part), own_prefill=False) for part in parts]
            case _:
                rounds = _some_of_each_robot(new, 1)
                return [_to_the_end(part, batch=self._robots, own_prefill=True) for part in rounds]

    @property
    def _together(self) -> int:
        """Requests of a query of one robot that are decoded in one batch."""
        requested = sum(task.arrivals.within(1) for task in self._tasks)
        return max(1, min(requested, self._rows // self._robots))

    def _continuous(self, new: Sequence[Request], queries: Container[int]) -> list[DecodeJob]:
        going = [each for each in self._active if not self._independent or each.robot in queries]
        rows = sorted(going, key=lambda request: request.order)[: self._rows]
        if not rows:
            return []
        return [
            DecodeJob(
                new=tuple(new),
                rows=tuple(rows),
                own_prefill=False,
                batch=self._rows,
                steps=max(request.limit - len(request.tokens) for request in rows),
                to_the_end=False,
            )
        ]

    def _release(self, request: Request, state: RequestState) -> None:
        request.state = state
        self._active.remove(request)
        self._free.append(request.slot)


def _move_up(waiting: Sequence[Request]) -> tuple[int, int]:
    """The first request leaves the line, the others move up one place each; returns the last one's place."""
    places = [request.order for request in waiting]
    for request, place in zip(waiting[1:], places, strict=False):
        request.order = place
    return places[-1]


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


def _to_the_end(requests: Sequence[Request], *, batch: int, own_prefill: bool) -> DecodeJob:
    return DecodeJob(
        new=tuple(requests),
        rows=tuple(requests),
        own_prefill=own_prefill,
        batch=batch,
        steps=max(request.limit for request in requests),
        to_the_end=True,
    )
