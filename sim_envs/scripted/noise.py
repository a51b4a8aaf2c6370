"""Noise of an expert: variation of pace and path, and disturbances from which it has to recover.

Noise is injected into executed actions, never into recorded labels, so that demonstrations show recovery
(after DART, Laskey et al., 2017, arXiv 1703.09327).
"""

import enum

import numpy as np
from jaxtyping import Float64

from configs.errors import UsageError
from sim_envs.scripted.motion import GripperMotion
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey

Actions = Float64[np.ndarray, "horizon 7"]

_SLOWEST = 0.5
"""Largest reduction of the pace at level 1, as a fraction."""

_ROOMY = 0.015
"""Minimal position tolerance (m) of waypoints that may be shifted."""

_ASIDE, _HIGHER = 0.015, 0.06
"""Shift (m) of such a waypoint at level 1: standard deviation sideways, maximum upwards."""

_JITTER = np.array([0.1, 0.1, 0.1, 0.03, 0.03, 0.03, 0.0])
"""Standard deviation of the noise on every executed action at level 1."""

_DISTURBED = 0.08
"""Probability per query that a disturbance begins, at level 1."""

_MISSED = 0.3
"""Probability per query that closing fingers open instead, at level 1."""

_QUERIES = 2
"""Maximal duration of a disturbance, in queries."""

_DRIFT = (0.2, 0.7)
"""Range of the offset that a drift adds to every action."""


class _Kind(enum.Enum):
    PAUSE = enum.auto()
    DRIFT = enum.auto()
    MISSED_GRASP = enum.auto()


class ExpertNoise:
    """All randomness of a noisy expert in one episode: a function of level and episode key."""

    def __init__(self, level: float, key: EpisodeKey) -> None:
        """Start an episode.

        Args:
            level: Noise level, from 0 (none) to 1.
            key: The episode.
        """
        self._level = level
        self._draws = np.random.default_rng([key.digest(), round(level * 1e6)])
        self._kind, self._left = _Kind.PAUSE, 0
        self._drift = np.zeros(7)

    def motion_variation(self, motion: GripperMotion) -> tuple[float, Float64[np.ndarray, "waypoints 3"]]:
        """Sample the pace of a new motion (fraction of full speed), and the shift (m) of each waypoint."""
        path = motion.path()
        shifts = self._draws.normal(0.0, _ASIDE * self._level, (len(path), 3))
        shifts[:, 2] = self._draws.uniform(0.0, _HIGHER * self._level, len(path))
        for shift, waypoint in zip(shifts, path, strict=True):
            shift[:] *= waypoint is not path[-1] and np.isfinite(waypoint.near) and waypoint.near >= _ROOMY
        return 1.0 - _SLOWEST * self._level * float(self._draws.uniform()), shifts

    def disturb(self, actions: Actions, phase: Phase) -> tuple[Actions, bool]:
        """The actions with noise, and whether a disturbance is active."""
        chance, kind, length = self._draws.uniform(), self._draws.integers(2), self._draws.integers(_QUERIES)
        way, size = self._draws.normal(size=3), self._draws.uniform(*_DRIFT)
        if not self._left:
            self._kind = _Kind.MISSED_GRASP if phase is Phase.GRASP else (_Kind.PAUSE, _Kind.DRIFT)[kind]
            limit = _MISSED if phase is Phase.GRASP else _DISTURBED
            self._drift[:3] = size * way / np.linalg.norm(way)
            self._left = 1 + int(length) if chance < limit * self._level else 0
        noisy = actions + self._level * _JITTER * self._draws.normal(size=actions.shape)
        disturbed = self._left > 0
        if disturbed:
            self._left -= 1
            if self._kind is _Kind.DRIFT:
                noisy += self._drift
            else:
                noisy[:, :6] = 0.0
            if self._kind is _Kind.MISSED_GRASP:
                noisy[:, 6] *= -1.0
        return np.clip(noisy, -1.0, 1.0), disturbed


def checked_level(noise: float) -> float:
    """Validate a noise level.

    Raises:
        UsageError: It is not between 0 and 1.
    """
    if not 0.0 <= noise <= 1.0:
        raise UsageError(f"expert noise is {noise}, must be between 0 (none) and 1")
    return noise
