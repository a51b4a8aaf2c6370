"""Demonstrators: policies that report their intended actions, alone or correcting a learner.

A learner and an expert may act alternately; only the expert's actions are then training targets.
Demonstrations start in states that the learner's own mistakes lead to (DAgger, Ross et al., 2011, arXiv
1011.0686; in turns as in HG-DAgger, Kelly et al., 2019, arXiv 1810.02890). Instead of a person, a random
number of queries ends a turn, and so does a learner that stands still.
"""

from collections import deque
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64

from configs.interface import Interface
from eval.policies.base import Policy
from oxygen.policy.reply import EpisodeEnd, Reply
from sim_envs.world import EpisodeKey, Observation

_LEARNER_TURN = (3, 96)
_EXPERT_TURN = (6, 14)
"""The fewest and the most queries of a turn. Some of the learner's are long, since it may get stuck late."""

_STUCK_QUERIES = 8
_STUCK_WITHIN = 0.01
"""A learner that moved by no more than this (m, rad) in that many queries is stuck, which ends its turn."""


@runtime_checkable
class Demonstrator(Policy, Protocol):
    """A policy that reports its intended actions, without the noise of the executed ones."""

    @property
    def intended(self) -> Float64[np.ndarray, "horizon action"] | None:
        """Actions of the last query without noise; None if they are not training targets."""


class CorrectedLearner:
    """Learner and expert in turns, the learner first. Turn lengths are a function of the episode key."""

    def __init__(self, learner: Policy, expert: Demonstrator, *, keeps_writing: bool = False) -> None:
        """Start with the learner.

        Args:
            learner: The policy to correct.
            expert: The demonstrator; reset at the start of each of its turns.
            keeps_writing: Whether the learner answers the expert's queries, too, for its texts.
        """
        self._learner, self._expert, self._keeps_writing = learner, expert, keeps_writing
        self._draws = np.random.default_rng(0)
        self._learning, self._left = True, 0
        self._states: deque[Float64[np.ndarray, " state"]] = deque(maxlen=_STUCK_QUERIES)

    @property
    def interface(self) -> Interface:
        """The learner's conventions."""
        return self._learner.interface

    @property
    def intended(self) -> Float64[np.ndarray, "horizon action"] | None:
        """The expert's intended actions of the last query; None if the learner acted."""
        return None if self._learning else self._expert.intended

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode."""
        self._key = key
        self._draws = np.random.default_rng([key.digest(), 1])
        self._learner.reset(key)
        self._learning, self._left = True, self._length(_LEARNER_TURN)
        self._states.clear()

    def act(self, observation: Observation) -> np.ndarray:
        """Answer one query with the acting policy."""
        still = len(self._states) == _STUCK_QUERIES and np.ptp(self._states, axis=0).max() <= _STUCK_WITHIN
        if self._left == 0 or (self._learning and still):
            self._learning = not self._learning
            self._states.clear()
            self._left = self._length(_LEARNER_TURN if self._learning else _EXPERT_TURN)
            if not self._learning:
                self._expert.reset(self._key)
        self._states.append(observation.state)
        self._left -= 1
        if self._keeps_writing and not self._learning:
            self._learner.act(observation)
        return self._acting.act(observation)

    def complete(self) -> Reply:
        """Complete the query."""
        reply = self._acting.complete()
        return self._learner.complete() if self._keeps_writing and not self._learning else reply

    def finish(self) -> EpisodeEnd:
        """End the episode."""
        self._expert.finish()
        return self._learner.finish()

    @property
    def _acting(self) -> Policy:
        return self._learner if self._learning else self._expert

    def _length(self, turn: tuple[int, int]) -> int:
        """Queries of the next turn, sampled log-uniformly."""
        shortest, longest = turn
        return int(np.exp(self._draws.uniform(np.log(shortest), np.log(longest + 1))))
