"""The contract of scripted policies, and two baselines that should solve nothing."""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64

from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.interface import Interface

HORIZON = 10  # actions per chunk


@runtime_checkable
class ScriptedPolicy(Protocol):
    """A policy without a model, reset per episode and queried every few control steps."""

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode, after the simulator's own reset."""

    def query(self, state: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, "horizon action"]:
        """The next action chunk after an observation's state; any number of its actions may be executed."""

    @property
    def intended(self) -> Float64[np.ndarray, "horizon action"]:
        """The actions of the last query without noise, for demonstrations."""


def checked_level(noise: float) -> float:
    """A noise level; a UsageError if it is not between 0 and 1."""
    if not 0.0 <= noise <= 1.0:
        raise UsageError(f"expert noise is {noise}, must be between 0 (none) and 1")
    return noise


class Noop:
    """Holds still."""

    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self.intended: Float64[np.ndarray, "horizon action"] = np.empty((0, interface.action.size))

    def reset(self, key: EpisodeKey) -> None:
        """Do nothing."""
        del key

    def query(self, state: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, "horizon action"]:
        """The interface's hold action, repeated."""
        self.intended = np.tile(self._interface.hold_action(state, None), (HORIZON, 1))
        return self.intended


class Random:
    """Samples every action uniformly within the interface's limits, seeded by the episode key."""

    def __init__(self, interface: Interface) -> None:
        """Sample actions of this interface; a UsageError if it has no limits."""
        if interface.action.limits is None:
            raise UsageError(f"policy random needs action limits, and {interface.name} has none; use noop")
        self._limits, self._size = interface.action.limits, interface.action.size
        self._draws = np.random.default_rng(0)
        self.intended: Float64[np.ndarray, "horizon action"] = np.empty((0, self._size))

    def reset(self, key: EpisodeKey) -> None:
        """Seed the samples."""
        self._draws = np.random.default_rng(key.digest())

    def query(self, state: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, "horizon action"]:
        """A new sample."""
        del state
        self.intended = self._draws.uniform(*self._limits, (HORIZON, self._size))
        return self.intended
