"""The robot of one connection: its row in the batch, its episode, and unsent texts."""

import asyncio
import dataclasses
from typing import Any

from oxygen.policy.reply import EpisodeEnd, Reply, Text
from oxygen.serve.batching import Acted, Batcher, RobotBatch


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryPosition:
    """Position of a query.

    Attributes:
        seed: Seed of its episode; None for the current one.
        query: Number of the query in the episode; None for the next.
        restart: Whether to restart the episode.
    """

    seed: int | None = None
    query: int | None = None
    restart: bool = False


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
        self._unsent: list[asyncio.Future[Reply | None]] = []

    async def act(self, observation: dict[str, Any], place: QueryPosition) -> Acted:
        """Answer a query.

        Raises:
            NoFreeRobotError: All rows of the batch are taken.
        """
        if self._row is None:
            self._row = await self._batcher.take_row()
        seed = self._seed if place.seed is None else place.seed
        query = self._query if place.query is None else place.query
        if self._starts or place.restart or (seed, query) != (self._seed, self._query):
            await self._start(seed, place.query or 0)
        batch, robot = self._row
        acted = await batch.act(robot, observation)
        self._query += 1
        self._has_acted = True
        self._unsent.append(acted.reply)
        return acted

    async def end_episode(self) -> EpisodeEnd:
        """End the episode; the next query starts another. Returns what was outstanding.

        Raises:
            Exception: Decoding the texts of the last query failed.
        """
        if self._row is None or not self._has_acted:
            return EpisodeEnd()
        try:
            await self.complete()
        finally:
            end = await self._start(self._seed + 1, 0)
        return end

    async def complete(self) -> None:
        """Wait for the texts of the last query."""
        if self._unsent:
            await self._unsent[-1]

    def take_replies(self) -> list[Reply]:
        """Return the replies that are ready and not yet sent.

        Raises:
            Exception: Decoding the texts of a query failed.
        """
        completed = [each for each in self._unsent if each.done()]
        self._unsent = [each for each in self._unsent if not each.done()]
        return [reply for each in completed if (reply := each.result()) is not None]

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
