"""Disturbances of an expert's arm, so that demonstrations show recovery (after DART, arXiv 1703.09327).

They are injected into executed actions, never into recorded labels.
"""

import numpy as np
from jaxtyping import Bool, Float64
from scipy.signal import lfilter

from sim_envs.droid.robot import ARM_JOINTS
from sim_envs.world import EpisodeKey

_STEPS = 600
"""Control steps after which the noise repeats."""

_SLOWEST = 0.4
"""Largest reduction of the pace at level 1, as a fraction."""

_WANDER, _MEMORY = 0.1, 0.9
"""Autoregressive noise of joint velocities: standard deviation (rad/s) at level 1, and autocorrelation."""

_PUSHED, _PUSH = 0.02, 0.35
"""Probability per control step that a push begins, at level 1; standard deviation (rad/s) of one."""

_PUSH_STEPS = (4, 12)
_LOOSENED, _LOOSE_STEPS = 0.004, 8
"""Probability per control step that a closed gripper begins to open, at level 1, and for how long."""


class JointNoise:
    """The disturbances of one episode: a function of level and episode key.

    Attributes:
        pace: Fraction of full speed.
    """

    def __init__(self, level: float, key: EpisodeKey) -> None:
        """Sample the disturbances.

        Args:
            level: Noise level, from 0 (none) to 1.
            key: The episode.
        """
        draws = np.random.default_rng([key.digest(), round(level * 1e6)])
        self.pace = 1.0 - _SLOWEST * level * float(draws.uniform())
        self._velocities = level * _wandering(draws) + _pushes(draws, level)
        self._loose = _begun(draws, _LOOSENED * level, steps=(_LOOSE_STEPS, _LOOSE_STEPS))

    def velocity(self, step: int) -> Float64[np.ndarray, " 7"]:
        """Disturbance of the joint velocities (rad/s) in a control step."""
        return self._velocities[step % _STEPS]

    def loosens(self, step: int) -> bool:
        """Whether a closed gripper is opened in a control step."""
        return bool(self._loose[step % _STEPS])


def _wandering(draws: np.random.Generator) -> Float64[np.ndarray, "step 7"]:
    shocks = draws.normal(0.0, _WANDER * np.sqrt(1 - _MEMORY**2), (_STEPS, len(ARM_JOINTS)))
    return lfilter([1.0], [1.0, -_MEMORY], shocks, axis=0)


def _pushes(draws: np.random.Generator, level: float) -> Float64[np.ndarray, "step 7"]:
    """A constant velocity during each push."""
    under_way = _begun(draws, _PUSHED * level, steps=_PUSH_STEPS)
    first = np.flatnonzero(under_way & ~np.append(False, under_way[:-1]))
    number = np.searchsorted(first, np.arange(_STEPS), side="right")
    directions = draws.normal(0.0, _PUSH, (len(first) + 1, len(ARM_JOINTS)))
    return np.where(under_way[:, None], directions[number], 0.0)


def _begun(
    draws: np.random.Generator, probability: float, *, steps: tuple[int, int]
) -> Bool[np.ndarray, " step"]:
    """Control steps covered by events with a start probability per step and a range of durations."""
    under_way = np.zeros(_STEPS, bool)
    begins, lengths = draws.uniform(size=_STEPS) < probability, draws.integers(*steps, _STEPS, endpoint=True)
    for step in np.flatnonzero(begins):
        under_way[step : step + lengths[step]] = True
    return under_way
