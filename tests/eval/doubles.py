"""A policy that does as it is told, and LIBERO's suites without LIBERO, for tests of the loop around both."""

import dataclasses
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.episode import EpisodeKey
from contracts.interface import Interface
from contracts.observation import Observation
from contracts.text import EpisodeEnd, Reply, Text, TextRequest
from eval.policies.base import LoadedPolicy, Policy
from sim_envs.fake import FakeWorld
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.suite import LiberoSuite
from sim_envs.libero.tasks import LIBERO_INTERFACE
from sim_envs.suite import Suite, Task, open_suite
from sim_envs.world import World


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeAssets(AssetSet):
    """Assets without a file, told apart by their digest alone."""

    name: str = "none"
    path: Path = Path()
    digest: str = "0" * 12


@dataclasses.dataclass
class FakePolicy:
    """Answers every query with constant actions; writes one text a query that takes two queries to finish.

    Attributes:
        actions: What every query is answered with.
        fails_at: Query in which it raises; never if None.
        fails_with: What it raises then.
        interrupted_at: Query (counted over all episodes) in which Ctrl-C arrives; never if None.
        answers: Queries that it has answered.
    """

    actions: Any = dataclasses.field(default_factory=lambda: np.zeros((10, 7)))
    fails_at: int | None = None
    fails_with: Exception = dataclasses.field(
        default_factory=lambda: FloatingPointError("the fake policy fails as it was told to")
    )
    interrupted_at: int | None = None
    interface: Interface = LIBERO_INTERFACE
    charged_ms: float | None = None
    queries: int = 0
    answers: int = 0
    episodes: list[EpisodeKey] = dataclasses.field(default_factory=list)
    _query: int = 0

    def reset(self, key: EpisodeKey) -> None:
        self.episodes.append(key)
        self._query = 0

    def act(self, observation: Observation) -> Any:
        query, self._query = self._query, self._query + 1
        self.queries += 1
        if self.queries - 1 == self.interrupted_at:
            signal.raise_signal(signal.SIGINT)
        if query == self.fails_at:
            raise self.fails_with
        self.answers += 1
        return self.actions

    def complete(self) -> Reply:
        query = self._query - 1
        return reply(
            timings_ms={"action": 2.0, "frame": 5.0},
            requested=(TextRequest(task="narration", request_id=query, query=query),),
            finished=(text_finished(query - 1),) if query else (),
            tokens=3,
        )

    def finish(self) -> EpisodeEnd:
        return EpisodeEnd(cancelled=1, compiles_after_warm_up=0)


def reply(**parts: Any) -> Reply:
    """A reply without texts, tokens or timings, but for the parts given."""
    return Reply(**{"timings_ms": {}, **parts})


def text_finished(query: int, **changes: Any) -> Text:
    """A text that was requested in a query and finished in the next one, but for the changes."""
    whole = Text(
        task="narration",
        request_id=query,
        requested_query=query,
        finished_query=query + 1,
        text=f"I narrate query {query} — schön",
        tokens=3,
        reason="stop",
        latency_ms=5.0,
    )
    return dataclasses.replace(whole, **changes)


def opened(policy: Policy) -> LoadedPolicy:
    """The policy as a run is handed it, the same in every world."""
    return LoadedPolicy(interface=policy.interface, inputs={}, in_world=lambda *_: policy)


def libero_object(**protocol: Any) -> Suite:
    """A suite of LIBERO's, whose worlds are not to be opened, with changes to its protocol."""
    with pytest.MonkeyPatch.context() as patch:
        without_physics(patch)
        return open_suite("libero_object", **protocol)


def without_physics(
    patch: pytest.MonkeyPatch,
    open_world: Callable[[Task], World] = lambda task: FakeWorld(success_at=7),
    *,
    find_assets: Callable[[str], AssetSet] = lambda source: FakeAssets(),
) -> None:
    """Let LIBERO's suites open worlds without physics, of no assets.

    Args:
        patch: Undoes it.
        open_world: Opens a task's world.
        find_assets: From what a configuration calls them to what the worlds are said to be of.
    """
    patch.setattr("sim_envs.libero.suite.find_assets", find_assets)
    patch.setattr(LiberoSuite, "check", lambda suite, tasks: None)
    patch.setattr(LiberoSuite, "open", lambda suite, task: open_world(task))
