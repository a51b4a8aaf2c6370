"""A learner that an expert takes over from, again and again: only the expert's actions are to be learnt.

So demonstrations begin where the learner's own mistakes lead, which no other disturbance of an expert finds
(DAgger, Ross et al., 2011, arXiv 1011.0686; in turns as HG-DAgger has them, Kelly et al., 2019, arXiv
1810.02890; in place of the person there are a clock, and an eye for a robot that stands still).
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64

from eval.collect.demonstrator import Demonstrator
from eval.policies.engine import Actions, Policy
from oxygen.policy.reply import Reply, Tail
from sim_envs.world import EpisodeKey, Observation, World

_LEARNER_TURN = (3, 96)
_EXPERT_TURN = (6, 14)
"""Queries that a turn lasts, at least and at most.

The learner's are long now and then: where it hangs, it hangs after a while.
"""

_STILL = 8
_STILL_WITHIN = 0.01
"""A learner that has moved by no more than this (m, rad) in so many queries hangs: its turn ends."""


class Corrected:
    """Two policies by turns, the learner first. How long each turn lasts is a function of the episode."""

    def __init__(self, learner: Policy, expert: Demonstrator) -> None:
        """Bring the two together.

        Args:
            learner: Who leads into trouble.
            expert: Who leads out of it; at each of its turns it begins anew in the state it finds.
        """
        self._learner, self._expert = learner, expert
        self._draws = np.random.default_rng(0)
        self._learning, self._left = True, 0
        self._states: deque[Float64[np.ndarray, " state"]] = deque(maxlen=_STILL)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """How the learner is shown the world."""
        return self._learner.inputs

    @property
    def intended(self) -> Float64[np.ndarray, "horizon 7"] | None:
        """What the expert held right at the last query; None if that was the learner's."""
        return None if self._learning else self._expert.intended

    def reset(self, world: World, key: EpisodeKey) -> None:
        """Begin an episode."""
        self._world, self._key = world, key
        self._draws = np.random.default_rng([key.digest(), 1])
        self._learner.reset(world, key)
        self._learning, self._left = True, self._length(_LEARNER_TURN)
        self._states.clear()

    def act(self, observation: Observation) -> Actions:
        """Answer a query: the policy whose turn it is does."""
        if self._left == 0 or (self._learning and self._hangs()):
            self._change_turns()
        self._states.append(observation.state)
        self._left -= 1
        return self._acting.act(observation)

    def settle(self) -> Reply:
        """The rest of the query."""
        return self._acting.settle()

    def finish(self) -> Tail:
        """End the episode."""
        self._expert.finish()
        return self._learner.finish()

    @property
    def _acting(self) -> Policy:
        return self._learner if self._learning else self._expert

    def _change_turns(self) -> None:
        self._learning = not self._learning
        self._states.clear()
        self._left = self._length(_LEARNER_TURN if self._learning else _EXPERT_TURN)
        if not self._learning:
            self._expert.reset(self._world, self._key)

    def _hangs(self) -> bool:
        """Whether nothing has moved for some queries of this turn: neither hand nor fingers."""
        return len(self._states) == _STILL and bool(np.ptp(self._states, axis=0).max() <= _STILL_WITHIN)

    def _length(self, turn: tuple[int, int]) -> int:
        """Queries of the next turn: its logarithm is drawn evenly, so that long turns are the rarer ones."""
        least, most = turn
        return int(np.exp(self._draws.uniform(np.log(least), np.log(most + 1))))
