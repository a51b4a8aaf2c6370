"""The contract of a policy as the rollout sees it. Imports neither JAX nor a simulator."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from configs.interface import Interface
from oxygen.policy.reply import Reply, Tail
from sim_envs.suite import Suite
from sim_envs.world import EpisodeKey, Observation, World


class PolicyLostError(RuntimeError):
    """The policy cannot answer any more, such as one whose server stays away: the run ends, to be resumed."""


class Policy(Protocol):
    """A policy. One object serves all episodes of a run, one after the other.

    A query is one `act` and one `settle`; physics may run in between.
    """

    @property
    def interface(self) -> Interface:
        """What it is shown and what actions it gives, compared with the suite's before the first step."""

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode; whatever was left of the one before is dropped."""

    def act(self, observation: Observation) -> np.ndarray:
        """Answer a query with a chunk of actions [horizon, action], as soon as they exist."""

    def settle(self) -> Reply:
        """Complete the query: the texts it brought and what each stage took, milliseconds."""

    def finish(self) -> Tail:
        """End the episode: cancel the texts still under way, and count them."""


class BatchPolicy(Protocol):
    """A policy in several episodes at once, which are at different moments. Each has a row of its own.

    A query is one `act` for some rows, and one `settle`. What it answers in an episode is the same whatever
    the others are, and in every row.
    """

    @property
    def rows(self) -> int:
        """How many episodes it can be in."""

    def reset(self, row: int, key: EpisodeKey) -> None:
        """Begin an episode in a row; whatever was left of the one before is dropped."""

    def act(self, observations: Mapping[int, Observation]) -> Mapping[int, np.ndarray]:
        """Answer the queries of some rows with a chunk of actions [horizon, action] each.

        The observations may be overwritten once it has returned.
        """

    def settle(self) -> Mapping[int, Reply]:
        """Complete the queries of the rows that `act` has answered."""

    def finish(self, row: int) -> Tail:
        """End the episode of a row: cancel the texts still under way, and count them."""


class PolicyRow:
    """One row of a policy of several, as a policy."""

    def __init__(self, policy: BatchPolicy, row: int, interface: Interface) -> None:
        self.batch = policy
        self.interface = interface
        self._row = row

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode."""
        self.batch.reset(self._row, key)

    def act(self, observation: Observation) -> np.ndarray:
        """Answer a query."""
        return self.batch.act({self._row: observation})[self._row]

    def settle(self) -> Reply:
        """Complete the query."""
        return self.batch.settle()[self._row]

    def finish(self) -> Tail:
        """End the episode."""
        return self.batch.finish(self._row)


class SingleRowBatch:
    """A policy that can be in one episode at a time, as one of a single row. Its observations are its own."""

    rows = 1

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def reset(self, row: int, key: EpisodeKey) -> None:
        """Begin an episode."""
        del row
        self._policy.reset(key)

    def act(self, observations: Mapping[int, Observation]) -> Mapping[int, np.ndarray]:
        """Answer a query."""
        return {row: self._policy.act(_copied(observation)) for row, observation in observations.items()}

    def settle(self) -> Mapping[int, Reply]:
        """Complete the query."""
        return {0: self._policy.settle()}

    def finish(self, row: int) -> Tail:
        """End the episode."""
        del row
        return self._policy.finish()


def _copied(observation: Observation) -> Observation:
    images = {name: image.copy() for name, image in observation.images.items()}
    return dataclasses.replace(observation, images=images, state=observation.state.copy())


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenPolicy:
    """A policy that has been loaded for a run.

    Attributes:
        interface: What it is shown and what actions it gives; None if it takes the suite's.
        horizon: Actions that it answers a query with; None if that is not known.
        inputs: How it is shown the world (prompt template, cameras), for the record.
        in_world: The policy for one episode. Only a scripted one is bound to the world, by its suite.
        groups: The policy for episodes in several processes, answered from this one; their rows are at least
            as many as the worlds it was opened for.
        opener: Opens it in each of several processes, to which it is sent, where there are no `groups`.
        reports_work: Whether its replies say what it computed (`Reply.work`), for profiles to price.
        remark: What to say about it before the first episode, in one line; None if nothing.
        close: Releases what it holds outside this process. A second call does nothing.
    """

    interface: Interface | None
    horizon: int | None
    inputs: Mapping[str, Any]
    in_world: Callable[[Suite, World], Policy]
    groups: Sequence[BatchPolicy] = ()
    opener: Callable[[], "OpenPolicy"] | None = None
    reports_work: bool = False
    remark: str | None = None
    close: Callable[[], None] = lambda: None
