"""The robots of all connections: their rows in batches, which run in one thread, their episodes and texts."""

import asyncio
import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import numpy as np

from contracts.errors import UsageError, unknown
from contracts.hashing import seed_of
from contracts.text import EpisodeEnd, Reply, Text
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.server.batching import BatchQueue, Query
from oxygen.server.metadata import EXTENSION

Result = TypeVar("Result")

_FREE_ROW_TIMEOUT_S = 1.0  # time to wait for the row of a client that has just disconnected, or reconnects


class NoFreeRobotError(UsageError):
    """All rows of the batch are taken by other connections."""


class Batcher:
    """Reserves rows of batches for robots; a row belongs to one robot until it is given back.

    Each batch has a policy of its own. It is opened when a robot needs it, so unused places cost neither
    memory nor time. Batches run one after the other, in one thread.
    """

    def __init__(
        self, open_policy: Callable[[int], VectorPolicy], *, robots: int, batch_size: int, window_s: float
    ) -> None:
        """Start without any batch.

        `open_policy` opens the policy of the batch with this number, in the inference thread, as robots need
        it. If it fails, the next robot tries again. A query waits for those of other robots in its batch for
        `window_s`.
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
        """Reserve a row that is free within a second: its batch, and its number there; else a
        NoFreeRobotError.
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
                while (opened := len(self._batches)) <= number:
                    policy = await asyncio.get_running_loop().run_in_executor(
                        self._thread, self._open_policy, opened
                    )
                    self._batches.append(RobotBatch(policy, self._thread, window_s=self._window_s))
                    self._serving.append(asyncio.create_task(self._batches[-1].serve()))
        except BaseException:
            self._free.put_nowait(place)
            raise
        return self._batches[number], robot

    async def give_back(self, batch: "RobotBatch", robot: int) -> None:
        """End the episode of a row's robot, and free the row."""
        with contextlib.suppress(Exception):  # already sent to the client whose query failed
            await batch.end_episode(robot)
        self._free.put_nowait(self._batches.index(batch) * self._batch_size + robot)

    def close(self) -> None:
        """Stop running batches, and wait for the thread."""
        for task in self._serving:
            task.cancel()
        self._thread.shutdown()


class RobotBatch:
    """Runs the queries of a batch of robots, in the inference thread.

    A robot is active from its first query until its episode ends. Its replies do not depend on the others,
    which `VectorPolicy` guarantees.
    """

    def __init__(self, policy: VectorPolicy, thread: ThreadPoolExecutor, *, window_s: float) -> None:
        self._policy = policy
        self._thread = thread
        self._queue = BatchQueue(self._act, policy.complete, window_s=window_s, failed=self._reset)
        self._changed = asyncio.Event()

    async def end_episode(self, robot: int) -> EpisodeEnd:
        """End a robot's episode; returns what was outstanding."""
        self._queue.remove(robot)
        self._changed.set()
        return await self._run(self._policy.finish, robot)

    async def start_episode(self, robot: int, seed: int, first_query: int = 0) -> EpisodeEnd:
        """End a robot's episode and start another one; returns what was outstanding."""
        end = await self.end_episode(robot)
        await self._run(self._policy.reset, robot, seed, first_query)
        return end

    async def act(
        self, robot: int, observation: Mapping[str, Any]
    ) -> tuple[np.ndarray, Mapping[str, float], int, asyncio.Future[Reply]]:
        """Answer a valid query; an invalid one would fail its whole batch.

        Returns the actions [horizon, action] in the robot's units, the milliseconds of stages until then and
        of `queue` (waiting for the batch), the tokens cut from its prompt, and the future reply.
        """
        loop = asyncio.get_running_loop()
        acted: asyncio.Future[tuple[np.ndarray, float, Mapping[str, float], int]] = loop.create_future()
        reply: asyncio.Future[Reply] = loop.create_future()
        query = Query(
            observation=observation,
            acted=lambda result: _resolve(acted, result),
            replied=lambda result: _resolve(reply, result),
        )
        self._queue.add(robot, query)
        self._changed.set()
        actions, began_s, stages_ms, prompt_cut = await acted
        return actions, {"queue": 1e3 * (began_s - query.arrived_s), **stages_ms}, prompt_cut, reply

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

    def _act(
        self, queries: Mapping[int, Mapping[str, Any]]
    ) -> dict[int, tuple[np.ndarray, float, Mapping[str, float], int]]:
        """The actions of each robot, when its batch began, its stages, and the tokens cut from its prompt."""
        began_s = time.monotonic()  # other batches may have been in the thread
        policy = self._policy
        chunks = policy.act(queries)
        return {
            robot: (chunks[robot], began_s, policy.acted_ms(robot), policy.prompt_cut(robot))
            for robot in queries
        }

    def _reset(self, robots: Iterable[int]) -> None:
        """Drop incomplete queries, which would block all others."""
        for robot in robots:
            with contextlib.suppress(Exception):  # if it fails again, the next query reports it
                self._policy.reset(robot, 0)

    async def _run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


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


_EPISODE = ("suite", "task_id", "init_id", "seed")
_KINDS = {
    "episode": ((int, dict), f"a seed, or a map of {', '.join(_EPISODE)}"),
    "query": ((int,), "a whole number from 0 on"),
    "reset": ((bool,), "true or false"),
    "poll": ((bool,), "true or false"),
}
"""Types of the fields of `QueryPosition`, and what they are called."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryPosition:
    """Position of a query: the field `oxygen_eval` of a request."""

    episode: int | dict[str, Any] | None = None  # the key of its episode, or a seed; None for the current one
    query: int | None = None  # number of the query in the episode; None for the next
    reset: bool = False  # whether to restart the episode
    poll: bool = False  # whether to answer with the texts of the last query instead

    @classmethod
    def read(cls, about: Any) -> Self:
        """Check the field of a request; a part that is unknown or of another type is a UsageError."""
        if not isinstance(about, dict):
            raise UsageError(f"{EXTENSION} is {type(about).__name__}; give a map")
        for name, value in about.items():
            if name not in _KINDS:
                raise unknown(f"field of {EXTENSION}", name, _KINDS)
            if value is None and name in ("episode", "query"):
                continue
            kinds, wanted = _KINDS[name]
            is_wrong = type(value) not in kinds or (name == "query" and not 0 <= value < 2**31)
            if is_wrong or (isinstance(value, dict) and set(value) != set(_EPISODE)):
                raise UsageError(f"{EXTENSION}.{name} is {value!r}; give {wanted}")
        return cls(**about)

    @property
    def seed(self) -> int | None:
        """Seed of its episode; None for the current one."""
        if isinstance(self.episode, dict):
            return seed_of(".".join(str(self.episode[name]) for name in _EPISODE))
        return None if self.episode is None else self.episode % 2**64


class ConnectedRobot:
    """The robot of one connection. It takes a row of the batch with its first query.

    The noise of its actions is a function of (episode, query). If the client does not name an episode, it is
    the number of the episode on this connection.
    """

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._row: tuple[RobotBatch, int] | None = None
        self._seed = 0
        self._query = 0
        self._starts, self._has_acted = True, False
        self._unsent: list[asyncio.Future[Reply]] = []

    async def act(
        self, observation: Mapping[str, Any], place: QueryPosition
    ) -> tuple[np.ndarray, Mapping[str, float], int]:
        """Answer a query: the actions, the milliseconds of its stages, and the tokens cut from its prompt.

        See `RobotBatch.act`. If all rows are taken, a NoFreeRobotError.
        """
        if self._row is None:
            self._row = await self._batcher.take_row()
        seed = place.seed
        if seed is None:
            seed = self._seed + (place.reset and self._has_acted)
        query = self._query if place.query is None else place.query
        if place.reset or seed != self._seed:
            await self._start(seed, place.query or 0)
        elif self._starts or query != self._query:
            await self._start(seed, query)
        batch, robot = self._row
        self._starts = self._has_acted = True  # if this fails, the next query starts anew at this place
        actions, timings_ms, prompt_cut, reply = await batch.act(robot, observation)
        self._starts = False
        self._query += 1
        self._unsent.append(reply)
        return actions, timings_ms, prompt_cut

    async def end_episode(self) -> tuple[list[Reply], EpisodeEnd]:
        """End the episode; the next query starts another. Returns replies not yet sent, and the rest.

        Raises what failed in decoding the texts of the last query.
        """
        if self._row is None or not self._has_acted:
            return [], EpisodeEnd()
        try:
            await self.complete()
            replies = self.take_replies()
        finally:
            end = await self._start(self._seed + 1, 0)
        return replies, end

    async def complete(self) -> None:
        """Wait for the texts of the last query."""
        if self._unsent:
            await self._unsent[-1]

    def take_replies(self) -> list[Reply]:
        """Return the replies that are ready and not yet sent; raises what failed in decoding their texts."""
        completed = [reply for reply in self._unsent if reply.done()]
        self._unsent = [reply for reply in self._unsent if not reply.done()]
        return [reply.result() for reply in completed]

    async def leave(self) -> None:
        """Give the row to others."""
        row, self._row = self._row, None
        if row is not None:
            await self._batcher.give_back(*row)

    async def _start(self, seed: int, query: int) -> EpisodeEnd:
        assert self._row is not None, "it has a row"
        batch, robot = self._row
        end = await batch.start_episode(robot, seed, query)
        self._seed, self._query, self._unsent = seed, query, []
        self._starts = self._has_acted = False
        return end


def text_message(text: Text) -> dict[str, Any]:
    """A text as a message: its fields, and the `query` of its observation."""
    fields = {name: value for name, value in dataclasses.asdict(text).items() if name != "step"}
    return {**fields, "query": text.requested_query, "finished": True}
