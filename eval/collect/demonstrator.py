"""Who demonstrates: a policy that can say what it held right, beside what it did."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float64

from eval.policies.engine import Actions, Policy
from oxygen.policy.reply import Reply, Tail
from sim_envs.world import EpisodeKey, Observation, World


class Demonstrator(Policy, Protocol):
    """A policy whose noise, if it has any, can be told from what it means."""

    @property
    def intended(self) -> Float64[np.ndarray, "horizon 7"] | None:
        """What it held right in the state of the last query; None where nothing is to be learnt from it."""


class MeansWhatItDoes:
    """Any policy as a demonstrator: nothing disturbs it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._answered: Float64[np.ndarray, "horizon 7"] = np.empty((0, 7))

    @property
    def inputs(self) -> Mapping[str, Any]:
        """How the policy is shown the world."""
        return self._policy.inputs

    @property
    def intended(self) -> Float64[np.ndarray, "horizon 7"]:
        """What it answered last."""
        return self._answered

    def reset(self, world: World, key: EpisodeKey) -> None:
        """Begin an episode."""
        self._policy.reset(world, key)

    def act(self, observation: Observation) -> Actions:
        """Answer a query with its actions."""
        actions = self._policy.act(observation)
        self._answered = np.asarray(actions, np.float64)
        return actions

    def settle(self) -> Reply:
        """The rest of the query."""
        return self._policy.settle()

    def finish(self) -> Tail:
        """End the episode."""
        return self._policy.finish()
