"""A policy that does as it is told and assets without a file, for tests of the loop around policies."""

import dataclasses
import signal
from collections.abc import Mapping
from typing import Any

import numpy as np

from oxygen.policy.reply import Reply, Tail, TextFinished, TextRequest
from sim_envs.libero.assets import AssetSet
from sim_envs.world import EpisodeKey, Observation, World


class FakeAssets(AssetSet):
    @property
    def digest(self) -> str:
        return "0" * 12


@dataclasses.dataclass
class FakePolicy:
    """Answers every query with constant actions; writes one text a query that takes two queries to finish.

    Attributes:
        actions: What every query is answered with.
        fails_at: Query in which it raises; never if None.
        complaint: What it says then.
        interrupted_at: Query (counted over all episodes) in which Ctrl-C arrives; never if None.
        answers: Queries that it has answered.
    """

    actions: Any = dataclasses.field(default_factory=lambda: np.zeros((10, 7)))
    fails_at: int | None = None
    complaint: str = "the fake policy fails as it was told to"
    interrupted_at: int | None = None
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    queries: int = 0
    answers: int = 0
    episodes: list[EpisodeKey] = dataclasses.field(default_factory=list)
    _query: int = 0

    def reset(self, world: World, key: EpisodeKey) -> None:
        self.episodes.append(key)
        self._query = 0

    def act(self, observation: Observation) -> Any:
        query, self._query = self._query, self._query + 1
        self.queries += 1
        if self.queries - 1 == self.interrupted_at:
            signal.raise_signal(signal.SIGINT)
        if query == self.fails_at:
            raise FloatingPointError(self.complaint)
        self.answers += 1
        return self.actions

    def settle(self) -> Reply:
        query = self._query - 1
        return Reply(
            timings_ms={"action": 2.0, "frame": 5.0},
            requested=(TextRequest(task="narration", request_id=query, query=query),),
            finished=(_text(query - 1),) if query else (),
            tokens=3,
        )

    def finish(self) -> Tail:
        return Tail(cancelled=1, compiles_after_warm_up=0)


def _text(query: int) -> TextFinished:
    return TextFinished(
        task="narration",
        request_id=query,
        requested_query=query,
        finished_query=query + 1,
        text=f"I narrate query {query} — schön",
        tokens=3,
        reason="stop",
        latency_ms=5.0,
    )
