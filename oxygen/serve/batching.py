"""Queues queries into batches; and runs the batches of all connections in one thread."""

import asyncio
import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from configs.errors import UsageError
from oxygen.policy.reply import EpisodeEnd, Reply

Result = TypeVar("Result")

_FREE_ROW_TIMEOUT_S = 1.0
"""Time to wait for the row of a client that has just disconnected, or reconnects."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """A query of one row of a batch.

    Attributes:
        observation: What the policy takes.
        acted: Called with the actions, or with the exception of the policy.
        replied: Called with the reply, or with the exception.
        arrived_s: In the time of `time.monotonic`.
    """

    observation: Any
    acted: Callable[[Any], None]
    replied: Callable[[Any], None]
    arrived_s: float = dataclasses.field(default_factory=time.monotonic)


class BatchQueue:
    """The queries that wait for one batch.

    The batch is due when every active row has a query, or when the oldest query has waited for the window.
    Actions do not depend on the composition of the batch.
    """

    def __init__(
        self,
        act: Callable[[Mapping[int, Any]], Mapping[int, Any]],
        complete: Callable[[], Mapping[int, Any]],
        *,
        window_s: float | None = None,
        failed: Callable[[Iterable[int]], None] | None = None,
    ) -> None:
        """Start empty.

        Args:
            act: Row to observation, to row to actions.
            complete: Row to the reply of the last query.
            window_s: Time that a query waits for others; None for the duration of the last batch, so that a
                query takes at most twice the minimum.
            failed: Called with the rows of a batch in which the policy has failed.
        """
        self._failed = failed
        self._act = act
        self._complete = complete
        self._window_s = window_s
        self._active: set[int] = set()
        self._waiting: dict[int, Query] = {}
        self._took_s = 0.0

    def activate(self, row: int) -> None:
        """Wait for this row's queries."""
        self._active.add(row)

    def add(self, row: int, query: Query) -> None:
        """Queue a query, which activates the row."""
        self._active.add(row)
        self._waiting[row] = query

    def remove(self, row: int) -> None:
        """Do not wait for this row until its next query."""
        self._active.discard(row)
        self._waiting.pop(row, None)

    def due_s(self) -> float:
        """When the batch is due, in the time of `time.monotonic`; infinite without a query."""
        first = min((query.arrived_s for query in self._waiting.values()), default=math.inf)
        window_s = self._took_s if self._window_s is None else self._window_s
        return first if self._active <= self._waiting.keys() else first + window_s

    def run(self) -> Iterator[bool]:
        """Take the waiting queries as a batch: answer with actions, yield, then answer with replies."""
        queries, self._waiting = self._waiting, {}
        return self._answer(queries)

    def _answer(self, queries: Mapping[int, Query]) -> Iterator[bool]:
        began_s = time.monotonic()
        has_acted = False
        try:
            actions = self._act({row: query.observation for row, query in queries.items()})
            acted = [(query, actions[row]) for row, query in queries.items()]
            has_acted = True
            for query, chunk in acted:
                query.acted(chunk)
            yield True
            replies = self._complete()
            for row, query in queries.items():
                query.replied(replies[row])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again where the queries came from
            for query in queries.values():
                (query.replied if has_acted else query.acted)(error)
            if self._failed is not None:
                self._failed(queries)
        self._took_s = time.monotonic() - began_s


@runtime_checkable
class BatchedPolicy(Protocol):
    """The methods of `VectorPolicy` that the server calls, from one thread."""

    def reset(self, robot: int, episode_seed: int, first_query: int = 0) -> None:
        """Start an episode of a robot."""

    def act(self, observations: Sequence[Mapping[str, Any] | None]) -> Sequence[np.ndarray | None]:
        """The actions of each robot with a query."""

    def acted_ms(self, robot: int) -> Mapping[str, float]:
        """Stage times of a robot's last query until its actions."""

    def complete(self) -> Sequence[Reply | None]:
        """The reply to each query."""

    def finish(self, robot: int) -> EpisodeEnd:
        """End a robot's episode."""


class NoFreeRobotError(UsageError):
    """All rows of the batch are taken by other connections."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Acted:
    """The actions of a query.

    Attributes:
        actions: [horizon, action], in the robot's units.
        timings_ms: The policy's stages until then, and `queue`: waiting for the batch.
        reply: Future reply to the query.
    """

    actions: np.ndarray
    timings_ms: Mapping[str, float]
    reply: asyncio.Future[Reply | None]


class Batcher:
    """Reserves rows of batches for robots; a row belongs to one robot until it is given back.

    Each batch has a policy of its own. It is opened when a robot needs it, so unused places cost neither
    memory nor time. Batches run one after the other, in one thread.
    """

    def __init__(
        self, open_policy: Callable[[int], BatchedPolicy], *, robots: int, batch_size: int, window_s: float
    ) -> None:
        """Start without any batch.

        Args:
            open_policy: Opens the policy of the batch with this number, in the inference thread as robots
                need it. If it fails, the next robot tries again.
            robots: Maximal number of robots.
            batch_size: Rows of a batch.
            window_s: Time that a query waits for those of other robots in its batch.
        """
        self._open_policy = open_policy
        self._robots = robots
        self._batch_size = batch_size
        self._window_s = window_s
        self._free: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()  # the lowest first: fewest batches
        for place in range(robots):
            self._free.put_nowait(place)
        self._batches: list[RobotBatch] = []
        self._opening = asyncio.Lock()
        self._serving: list[asyncio.Task[None]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inference")

    async def take_row(self) -> "tuple[RobotBatch, int]":
        """Reserve a free row, or one that is given back within a second: its batch, and its number there.

        Raises:
            NoFreeRobotError: None is free.
        """
        try:
            place = await asyncio.wait_for(self._free.get(), _FREE_ROW_TIMEOUT_S)
        except TimeoutError:
            taken = f"all {self._robots} robots are" if self._robots > 1 else "the only robot is"
            message = f"{taken} taken; try later, or start the server with more --robots"
            raise NoFreeRobotError(message) from None
        number, robot = divmod(place, self._batch_size)
        try:
            if number >= len(self._batches):  # robots of open batches do not wait for others' to open
                async with self._opening:
                    while number >= len(self._batches):
                        policy = await asyncio.get_running_loop().run_in_executor(
                            self._thread, self._open_policy, len(self._batches)
                        )
                        batch = RobotBatch(
                            policy, robots=self._batch_size, window_s=self._window_s, thread=self._thread
                        )
                        self._batches.append(batch)
                        self._serving.append(asyncio.create_task(batch.serve()))
        except BaseException:
            self._free.put_nowait(place)
            raise
        return self._batches[number], robot

    async def give_back(self, batch: "RobotBatch", robot: int) -> None:
        """End the episode of a row's robot, and free the row."""
        await batch.end(robot)
        self._free.put_nowait(self._batches.index(batch) * self._batch_size + robot)

    def close(self) -> None:
        """Stop running batches, and wait for the thread."""
        for task in self._serving:
            task.cancel()
        self._thread.shutdown()


class RobotBatch:
    """Runs the queries of a batch of robots, in the inference thread.

    A robot is active from its first query until its episode ends. Its replies do not depend on the others,
    which `VectorPolicy` with independent robots guarantees.
    """

    def __init__(
        self, policy: BatchedPolicy, *, robots: int, window_s: float, thread: ThreadPoolExecutor
    ) -> None:
        self._policy = policy
        self._robots = robots
        self._queue = BatchQueue(
            self._acted, lambda: dict(enumerate(policy.complete())), window_s=window_s, failed=self._reset
        )
        self._changed = asyncio.Event()
        self._thread = thread

    async def end(self, robot: int) -> None:
        """End a robot's episode."""
        self._deactivate(robot)
        with contextlib.suppress(Exception):  # already sent to the client whose query failed
            await self._run(self._policy.finish, robot)

    async def start_episode(self, robot: int, seed: int, first_query: int = 0) -> EpisodeEnd:
        """End a robot's episode and start another one; returns what was outstanding."""
        self._deactivate(robot)

        def restart() -> EpisodeEnd:
            end = self._policy.finish(robot)
            self._policy.reset(robot, seed, first_query)
            return end

        return await self._run(restart)

    async def act(self, robot: int, observation: Mapping[str, Any]) -> Acted:
        """Answer a valid query; an invalid one would fail its whole batch."""
        loop = asyncio.get_running_loop()
        acted: asyncio.Future[tuple[np.ndarray, float, Mapping[str, float]]] = loop.create_future()
        reply: asyncio.Future[Reply | None] = loop.create_future()
        query = Query(
            observation=observation,
            acted=lambda result: _resolve(acted, result),
            replied=lambda result: _resolve(reply, result),
        )
        self._queue.add(robot, query)
        self._changed.set()
        actions, began_s, stages_ms = await acted
        timings_ms = {"queue": 1e3 * (began_s - query.arrived_s), **stages_ms}
        return Acted(actions=actions, timings_ms=timings_ms, reply=reply)

    async def serve(self) -> None:
        """Run batches until cancelled."""
        while True:
            self._changed.clear()
            left_s = self._queue.due_s() - time.monotonic()
            if left_s > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), None if left_s == math.inf else left_s)
                continue
            stages = self._queue.run()
            while await self._run(next, stages, None):  # other batches may act before these replies
                pass

    def _acted(self, queries: Mapping[int, Any]) -> dict[int, tuple[Any, float, Mapping[str, float]]]:
        """The actions of each robot, when its batch began, and its stages."""
        began_s = time.monotonic()  # other batches may have been in the thread
        observations = [queries.get(robot) for robot in range(self._robots)]
        chunks = self._policy.act(observations)
        return {robot: (chunks[robot], began_s, self._policy.acted_ms(robot)) for robot in queries}

    def _reset(self, robots: Iterable[int]) -> None:
        """Drop incomplete queries, which would block all others."""
        for robot in robots:
            with contextlib.suppress(Exception):  # if it fails again, the next query reports it
                self._policy.reset(robot, 0)

    async def _run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _deactivate(self, robot: int) -> None:
        self._queue.remove(robot)
        self._changed.set()


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    """Set the result of a future, or its exception, from the inference thread."""

    def resolve() -> None:
        if future.done():
            return
        if isinstance(result, BaseException):
            future.set_exception(result)
            future.exception()  # no warning from asyncio if its connection is closed
        else:
            future.set_result(result)

    future.get_loop().call_soon_threadsafe(resolve)
