"""The contract of a policy as the rollout sees it. Imports neither JAX nor a simulator."""

import dataclasses
from collections.abc import Callable, Mapping
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenPolicy:
    """A policy that has been loaded for a run.

    Attributes:
        interface: What it is shown and what actions it gives; None if it takes the suite's.
        horizon: Actions that it answers a query with; None if that is not known.
        inputs: How it is shown the world (prompt template, cameras), for the record.
        in_world: The policy for one episode. Only a scripted one is bound to the world, by its suite.
        reports_work: Whether its replies say what it computed (`Reply.work`), for profiles to price.
        remark: What to say about it before the first episode, in one line; None if nothing.
        close: Releases what it holds outside this process. A second call does nothing.
    """

    interface: Interface | None
    horizon: int | None
    inputs: Mapping[str, Any]
    in_world: Callable[[Suite, World], Policy]
    reports_work: bool = False
    remark: str | None = None
    close: Callable[[], None] = lambda: None
