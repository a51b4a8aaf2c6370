"""Noise of an expert: variation of pace and path, and disturbances from which it has to recover.

Noise is injected into executed actions, never into recorded labels, so that demonstrations show recovery
(after DART, Laskey et al., 2017, arXiv 1703.09327).
"""

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from configs.errors import UsageError
from sim_envs.scripted.motion import GripperMotion, Waypoint
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class MotionVariation:
    """Random variation of one motion.

    Attributes:
        pace: Fraction of full speed.
        shifts: Displacement (m) of each waypoint.
    """

    pace: float
    shifts: Float64[np.ndarray, "waypoints 3"]

    def path(self, path: Sequence[Waypoint]) -> list[Waypoint]:
        """The shifted waypoints."""
        return [
            dataclasses.replace(point, pose=point.pose.shifted(shift))
            for point, shift in zip(path, self.shifts, strict=True)
        ]


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

    def motion_variation(self, motion: GripperMotion) -> MotionVariation:
        """Sample the variation of a new motion."""
        path = motion.path()
        shifts = self._draws.normal(0.0, _ASIDE * self._level, (len(path), 3))
        shifts[:, 2] = self._draws.uniform(0.0, _HIGHER * self._level, len(path))
        for shift, waypoint in zip(shifts, path, strict=True):
            shift[:] *= waypoint is not path[-1] and np.isfinite(waypoint.near) and waypoint.near >= _ROOMY
        return MotionVariation(
            pace=1.0 - _SLOWEST * self._level * float(self._draws.uniform()), shifts=shifts
        )

    def disturb(self, actions: Actions, phase: Phase) -> tuple[Actions, bool]:
        """The actions with noise, and whether a disturbance is active."""
        self._maybe_begin(phase)
        noisy = actions + self._level * _JITTER * self._draws.normal(size=actions.shape)
        if self._left == 0:
            return np.clip(noisy, -1.0, 1.0), False
        self._left -= 1
        return np.clip(self._disturbed(noisy), -1.0, 1.0), True

    def _maybe_begin(self, phase: Phase) -> None:
        chance, kind, length = self._draws.uniform(), self._draws.integers(2), self._draws.integers(_QUERIES)
        way, size = self._draws.normal(size=3), self._draws.uniform(*_DRIFT)
        if self._left:
            return
        if phase is Phase.GRASP:
            self._kind, limit = _Kind.MISSED_GRASP, _MISSED
        else:
            self._kind, limit = (_Kind.PAUSE, _Kind.DRIFT)[kind], _DISTURBED
        self._drift[:3] = size * way / np.linalg.norm(way)
        self._left = 1 + int(length) if chance < limit * self._level else 0

    def _disturbed(self, actions: Actions) -> Actions:
        if self._kind is _Kind.DRIFT:
            return actions + self._drift
        still = actions.copy()
        still[:, :6] = 0.0
        if self._kind is _Kind.MISSED_GRASP:
            still[:, 6] = -still[:, 6]
        return still


def checked_level(noise: float) -> float:
    """Validate a noise level.

    Raises:
        UsageError: It is not between 0 and 1.
    """
    if not 0.0 <= noise <= 1.0:
        raise UsageError(f"expert noise is {noise}, must be between 0 (none) and 1")
    return noise
