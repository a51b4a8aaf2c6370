"""Demonstrators: policies that report their intended actions, without execution noise."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from jaxtyping import Float64

from configs.interface import Interface
from eval.policies.base import Policy
from eval.policies.oracle import Oracle
from eval.policies.scripted import Scripted, scripted_policy
from oxygen.policy.reply import EpisodeEnd, Reply
from sim_envs.suite import Suite
from sim_envs.world import EpisodeKey, Observation, World


class Demonstrator(Policy, Protocol):
    """A policy that reports its intended actions, without the noise of the executed ones."""

    @property
    def intended(self) -> Float64[np.ndarray, "horizon action"] | None:
        """Actions of the last query without noise; None if they are not training targets."""


class NoiseFreeDemonstrator:
    """Any policy as a demonstrator: its intended actions are those it executes."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._answered: Float64[np.ndarray, "horizon action"] = np.empty((0, 7))

    @property
    def interface(self) -> Interface:
        """The policy's own."""
        return self._policy.interface

    @property
    def intended(self) -> Float64[np.ndarray, "horizon action"]:
        """The actions of the last query."""
        return self._answered

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode."""
        self._policy.reset(key)

    def act(self, observation: Observation) -> np.ndarray:
        """Answer one query."""
        self._answered = np.asarray(self._policy.act(observation), np.float64)
        return self._answered

    def complete(self) -> Reply:
        """Complete the query."""
        return self._policy.complete()

    def finish(self) -> EpisodeEnd:
        """End the episode."""
        return self._policy.finish()


OpenDemonstrator = Callable[[Suite, World], Demonstrator]
"""Opens a demonstrator in a world."""


def scripted_demonstrator(kind: str, noise: float) -> OpenDemonstrator:
    """A scripted policy without texts."""

    def in_world(suite: Suite, world: World) -> Demonstrator:
        return Scripted(
            suite.interface, lambda: scripted_policy(kind, suite, world, noise), Oracle((), world)
        )

    return in_world
