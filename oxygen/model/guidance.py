"""Real-time chunking: denoising guided towards the actions under way (Black et al., arXiv 2506.07339).

While a chunk is computed, the robot goes on with the chunk before. The new chunk is to agree with it: fully
over the actions that will have been executed, less and less over those behind them. Each denoising step
estimates the actions that it leads to, and pulls the velocity, by the estimate's Jacobian, towards those
that make the estimate agree (ΠGDM, with the paper's limit on the weight).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from oxygen.typing import Array, Bool, Float32, Leaf

MAX_WEIGHT = 5.0
"""The most that guidance counts beside the velocity, the paper's β."""

AuxT = TypeVar("AuxT")


@flax.struct.dataclass
class Guidance:
    """What new chunks are to agree with, a row for each robot.

    Attributes:
        actions: The chunk before, normalised, from the action on that is executed as the observation is
            taken, [robot, horizon, action]. What has weight 0 does not count.
        weight: How much a new chunk is to agree with each action, 0 to 1, [robot, horizon]. A robot with
            nothing under way has weights of 0.
    """

    actions: Leaf | np.ndarray
    weight: Leaf | np.ndarray

    @classmethod
    def none(cls, shape: tuple[int, int, int]) -> "Guidance":
        """For as many robots, actions and channels, none of whom has anything under way."""
        return cls(actions=np.zeros(shape, np.float32), weight=np.zeros(shape[:2], np.float32))

    @classmethod
    def stacked(cls, rows: Sequence["Guidance"]) -> "Guidance":
        """Those of single robots in one batch."""
        return cls(
            actions=np.concatenate([row.actions for row in rows]),
            weight=np.concatenate([row.weight for row in rows]),
        )

    @classmethod
    def towards(
        cls, chunk: Float32[np.ndarray, "horizon action"], *, first: int, delay: int, horizon: int
    ) -> "Guidance":
        """For one robot, which goes on with a chunk.

        Args:
            chunk: The chunk, normalised.
            first: Index of its action that is executed as the observation is taken.
            delay: Actions that are executed until the new chunk has come.
            horizon: Actions of the new chunk.
        """
        left = chunk[first:][:horizon]
        actions = np.pad(left, ((0, horizon - len(left)), (0, 0)))
        weight = soft_mask(horizon, left=len(left), delay=min(delay, len(left)))
        return cls(actions=actions[None], weight=weight[None])

    @property
    def guides(self) -> Bool[np.ndarray, " robot"]:
        """Which robots have anything under way."""
        return np.any(np.asarray(self.weight) > 0, axis=1)


def soft_mask(horizon: int, *, left: int, delay: int) -> Float32[np.ndarray, " horizon"]:
    """How much each action of a new chunk is to agree with the one of the chunk before.

    1 over the delay; from there it decays exponentially to the end of the chunk before; 0 behind that
    (equation 5 of the paper, whose H - s is `left`).

    Args:
        horizon: Actions of the new chunk.
        left: Actions that are left of the chunk before, at most `horizon`.
        delay: Those of them that are executed until the new chunk has come.
    """
    number = np.arange(horizon)
    remaining = (left - number) / (left - delay + 1)
    decaying = remaining * np.expm1(remaining) / np.expm1(1.0)
    weight = np.where(number < delay, 1.0, np.where(number < left, decaying, 0.0))
    return weight.astype(np.float32)


def guided(
    velocity_at: Callable[[Array], tuple[Array, AuxT]],
    x: Float32[Array, "robot horizon action"],
    time: Float32[Array, ""],
    guidance: Guidance,
) -> tuple[Float32[Array, "robot horizon action"], AuxT]:
    """The velocity of a guided flow from noise (t = 1) to actions (t = 0), and what comes with it.

    Args:
        velocity_at: The flow's own velocity at that time, and anything besides.
        x: Where the actions are.
        time: The flow time, above 0.
        guidance: What the actions are to agree with.
    """

    def estimate(x: Array) -> tuple[Array, tuple[Array, AuxT]]:
        velocity, besides = velocity_at(x)
        return x - time * velocity, (velocity, besides)

    actions, pull_back, (velocity, besides) = jax.vjp(estimate, x, has_aux=True)
    error = guidance.weight[..., None] * (guidance.actions - actions)
    return velocity - _strength(time) * pull_back(error)[0], besides


def _strength(time: Float32[Array, ""]) -> Float32[Array, ""]:
    """How much guidance counts: (1 - τ) / (τ r²) with τ = 1 - t and r² = t² / (t² + τ²), up to the limit.

    r² is the variance of the actions given x, where these are normal of variance 1 beforehand.
    """
    progress = 1.0 - time
    return jnp.minimum(MAX_WEIGHT, (time**2 + progress**2) / (time * progress))
