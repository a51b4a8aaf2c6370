"""Real-time chunking: denoising guided towards the previous chunk (Black et al., arXiv 2506.07339).

While a chunk is computed, the robot executes the previous one. The new chunk should match it: fully over the
actions executed meanwhile, with decaying weight over the rest. Each denoising step estimates the final
actions and corrects the velocity by the estimate's vector-Jacobian product (ΠGDM, with the paper's clipping).
"""

from collections.abc import Callable
from typing import TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from oxygen.typing import Array, Bool, Float32, Leaf

MAX_WEIGHT = 5.0
"""Maximal guidance weight, the paper's β."""

AuxT = TypeVar("AuxT")


@flax.struct.dataclass
class Guidance:
    """Guidance targets of new chunks, one row per robot."""

    # The previous chunk, normalised, starting at the action executed at the time of the observation, [robot,
    # horizon, action].
    actions: Leaf | np.ndarray
    # Weight of each action, 0 to 1, [robot, horizon]; all 0 for robots without guidance.
    weight: Leaf | np.ndarray

    @classmethod
    def none(cls, shape: tuple[int, int, int]) -> "Guidance":
        """Guidance without effect, for a shape (robots, horizon, channels)."""
        return cls(actions=np.zeros(shape, np.float32), weight=np.zeros(shape[:2], np.float32))

    @classmethod
    def towards(cls, chunk: Float32[np.ndarray, "horizon action"], *, first: int, delay: int) -> "Guidance":
        """Guidance of one robot's new chunk towards the normalised one it executes, of the same length.

        `first` is the index of the action executed at the time of the observation; `delay` actions are
        executed until the new chunk is ready.
        """
        left = chunk[first:]
        actions = np.pad(left, ((0, len(chunk) - len(left)), (0, 0)))
        weight = soft_mask(len(chunk), left=len(left), delay=min(delay, len(left)))
        return cls(actions=actions[None], weight=weight[None])

    @property
    def guides(self) -> Bool[np.ndarray, " robot"]:
        """Which robots are guided."""
        return np.any(np.asarray(self.weight) > 0, axis=1)


def soft_mask(horizon: int, *, left: int, delay: int) -> Float32[np.ndarray, " horizon"]:
    """Guidance weight of each action of a new chunk (equation 5 of the paper, whose H - s is `left`).

    1 for the `delay` actions that are executed until the new chunk is ready, then exponential decay to the
    end of the previous chunk, of which at most `horizon` actions are `left`, then 0.
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
    """The velocity of a guided flow from noise (t = 1) to actions (t = 0), with the auxiliary output.

    `velocity_at` gives the flow's velocity at noisy actions `x` at that time, above 0, and any such output.
    """

    def estimate(x: Array) -> tuple[Array, tuple[Array, AuxT]]:
        velocity, besides = velocity_at(x)
        return x - time * velocity, (velocity, besides)

    actions, pull_back, (velocity, besides) = jax.vjp(estimate, x, has_aux=True)
    error = guidance.weight[..., None] * (guidance.actions - actions)
    # (1 - τ) / (τ r²) with τ = 1 - t, where r² = t² / (t² + τ²) is the posterior variance of the actions
    # given x, for a standard normal prior.
    progress = 1.0 - time
    strength = jnp.minimum(MAX_WEIGHT, (time**2 + progress**2) / (time * progress))
    return velocity - strength * pull_back(error)[0], besides
