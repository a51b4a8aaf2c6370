"""What scripted policies have in common, and the two that show that nothing is solved by chance."""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64
from typing_extensions import override

from sim_envs.world import EpisodeKey

HORIZON = 10
"""Actions per chunk."""

_STAND_STILL = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])


def standing_still() -> Float64[np.ndarray, "horizon 7"]:
    """A chunk that keeps the arm where it is, with an open gripper."""
    return np.tile(_STAND_STILL, (HORIZON, 1))


@runtime_checkable
class ScriptedPolicy(Protocol):
    """A policy that needs no model: it is told the episode, then queried every few control steps."""

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode. To be called after the simulator's own reset."""

    def query(self) -> Float64[np.ndarray, "horizon 7"]:
        """The next chunk of actions, each in [−1, 1]; any number of them may be carried out."""

    @property
    def intended(self) -> Float64[np.ndarray, "horizon 7"]:
        """What the policy holds right in the state of the last query: what a demonstration should teach.

        Equal to what `query` returned, unless noise was put into that. At first: to stand still.
        """


class Noop(ScriptedPolicy):
    """Stands still with an open gripper."""

    @override
    def reset(self, key: EpisodeKey) -> None:
        pass

    @override
    def query(self) -> Float64[np.ndarray, "horizon 7"]:
        return standing_still()

    @property
    @override
    def intended(self) -> Float64[np.ndarray, "horizon 7"]:
        return standing_still()


class Random(ScriptedPolicy):
    """Draws every action uniformly from [−1, 1]⁷; the episode key decides which."""

    def __init__(self) -> None:
        self._drawn = standing_still()

    @override
    def reset(self, key: EpisodeKey) -> None:
        self._draws = np.random.default_rng(key.digest())
        self._drawn = standing_still()

    @override
    def query(self) -> Float64[np.ndarray, "horizon 7"]:
        self._drawn = self._draws.uniform(-1.0, 1.0, (HORIZON, 7))
        return self._drawn

    @property
    @override
    def intended(self) -> Float64[np.ndarray, "horizon 7"]:
        return self._drawn
