"""Runs the queries of all connections, in batches or in turn, in one thread."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from configs.errors import UsageError
from oxygen.policy.reply import EpisodeEnd, Reply

Result = TypeVar("Result")

_FREE_ROW_TIMEOUT_S = 1.0
"""Time to wait for the row of a client that has just disconnected, or reconnects."""


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Query:
    observation: Mapping[str, Any]
    arrived_s: float
    acted: asyncio.Future[Acted]
    reply: asyncio.Future[Reply | None]


class Batcher:
    """Reserves rows of batches for robots; a row belongs to one robot until it is given back.

    Each batch has a policy of its own. It is opened when a robot needs it, so unused places cost neither
    memory nor time. Batches run one after the other, in one thread.
    """

    def __init__(
        self, policies: Iterator[BatchedPolicy], *, robots: int, batch_size: int, window_s: float
    ) -> None:
        """Start without any batch.

        Args:
            policies: One for each batch, opened in the inference thread as robots need it.
            robots: Maximal number of robots.
            batch_size: Rows of a batch.
            window_s: Time that a query waits for those of other robots in its batch.
        """
        self._policies = policies
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

    async def take_row(self) -> "Row":
        """Reserve a free row, or one that is given back within a second.

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
            async with self._opening:
                while len(self._batches) <= number:
                    policy = await asyncio.get_running_loop().run_in_executor(
                        self._thread, next, self._policies
                    )
                    batch = RobotBatch(
                        policy, robots=self._batch_size, window_s=self._window_s, thread=self._thread
                    )
                    self._batches.append(batch)
                    self._serving.append(asyncio.create_task(batch.serve()))
        except BaseException:
            self._free.put_nowait(place)
            raise
        return Row(batch=self._batches[number], robot=robot, place=place)

    async def give_back(self, row: "Row") -> None:
        """End the episode of a row's robot, and free the row."""
        await row.batch.end(row.robot)
        self._free.put_nowait(row.place)

    def close(self) -> None:
        """Stop running batches, and wait for the thread."""
        for task in self._serving:
            task.cancel()
        self._thread.shutdown()


class RobotBatch:
    """Runs queries in a batch: when every active robot has one, or the first has waited for the window.

    A robot is active from its first query until its episode ends. Its replies do not depend on the others,
    which `VectorPolicy` with independent robots guarantees.
    """

    def __init__(
        self, policy: BatchedPolicy, *, robots: int, window_s: float, thread: ThreadPoolExecutor
    ) -> None:
        self._policy = policy
        self._robots = robots
        self._window_s = window_s
        self._active: set[int] = set()
        self._waiting: dict[int, _Query] = {}
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
        self._active.add(robot)
        query = _Query(
            observation=observation,
            arrived_s=loop.time(),
            acted=loop.create_future(),
            reply=loop.create_future(),
        )
        self._waiting[robot] = query
        self._changed.set()
        return await query.acted

    async def serve(self) -> None:
        """Run batches until cancelled."""
        while True:
            await self._wait_until_due()
            queries, self._waiting = self._waiting, {}
            await self._answer(queries)

    async def _wait_until_due(self) -> None:
        while not self._waiting:
            await self._wait_for_change(None)
        due_s = min(query.arrived_s for query in self._waiting.values()) + self._window_s
        while self._active - self._waiting.keys():
            left_s = due_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                return
            await self._wait_for_change(left_s)

    async def _wait_for_change(self, most_s: float | None) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), most_s)

    async def _answer(self, queries: Mapping[int, _Query]) -> None:
        """Answer queries with their actions, then with their replies."""
        now = asyncio.get_running_loop().time

        def act() -> tuple[float, dict[int, tuple[np.ndarray, Mapping[str, float]]]]:
            began_s = now()  # other batches may have been in the thread
            observations = [
                queries[robot].observation if robot in queries else None for robot in range(self._robots)
            ]
            chunks = self._policy.act(observations)
            acted = {
                robot: (chunk, self._policy.acted_ms(robot))
                for robot, chunk in enumerate(chunks)
                if chunk is not None
            }
            return began_s, acted

        try:
            began_s, acted = await self._run(act)
            for robot, query in queries.items():
                chunk, stages_ms = acted[robot]
                timings_ms = {"queue": 1e3 * (began_s - query.arrived_s), **stages_ms}
                _set_result(query.acted, Acted(actions=chunk, timings_ms=timings_ms, reply=query.reply))
            replies = await self._run(self._policy.complete)
        except Exception as error:  # noqa: BLE001 - sent to every client in the batch
            for query in queries.values():
                _set_exception(query.acted, error)
                _set_exception(query.reply, error)
            for robot in queries:  # an incomplete query would block all others
                with contextlib.suppress(Exception):  # if it fails again, the next query reports it
                    await self._run(self._policy.reset, robot, 0)
            return
        for robot, query in queries.items():
            _set_result(query.reply, replies[robot])

    async def _run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _deactivate(self, robot: int) -> None:
        """Do not wait for this robot until its next query."""
        self._active.discard(robot)
        self._changed.set()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A robot's row.

    Attributes:
        batch: Its batch.
        robot: Its number in the batch.
        place: Its number among the rows of all batches.
    """

    batch: RobotBatch
    robot: int
    place: int


def _set_result(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # no warning from asyncio if its connection is closed
