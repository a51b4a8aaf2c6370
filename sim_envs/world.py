"""What every world shares: the identity of an episode, what is observed, the verbs of a simulator."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, UInt8

from configs.action_prefix import ActionPrefix
from sim_envs.truth.account import Truth


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class EpisodeKey:
    """The identity of an episode: everything random about it is a function of these four.

    Attributes:
        suite: Name of the task suite.
        task_id: Index of the task in the suite's own order.
        init_id: Index of the stored initial state, or the number of a drawn one.
        seed: What the environment is seeded with before every episode, and the root of the policy's noise.
    """

    suite: str
    task_id: int
    init_id: int
    seed: int

    def __str__(self) -> str:
        return f"{self.suite}.{self.task_id}.{self.init_id}.{self.seed}"

    def digest(self) -> int:
        """A 64-bit number that is a stable function of the key, on every machine and in every process."""
        return int.from_bytes(hashlib.sha256(str(self).encode()).digest()[:8], "big")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """What a policy is shown at a query step.

    Attributes:
        images: Camera name to pixels, as the suite's interface declares them.
        state: Proprioception, likewise.
        language: The instruction, in the suite's own words.
        action_prefix: What the robot goes on to execute of the policy's last chunk while this query is
            answered, where the policy is to heed it; else None.
    """

    images: Mapping[str, UInt8[np.ndarray, "height width 3"]]
    state: Float64[np.ndarray, " state"]
    language: str
    action_prefix: ActionPrefix | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvanceResult:
    """What came of a piece of open-loop control.

    Attributes:
        steps: Control steps taken; fewer than the actions given if the task was solved on the way.
        success: Whether the task's goal held after the last step taken.
    """

    steps: int
    success: bool


class PhysicsError(RuntimeError):
    """The physics diverged under finite actions: a failure of the policy that chose them."""


@runtime_checkable
class World(Protocol):
    """A simulator with one task loaded: physics in `advance`, pictures in `observe`, nothing of a policy."""

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        """Reseed, load the initial state `init_id` and let it settle. No image is rendered."""

    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> AdvanceResult:
        """Run the actions one control step each, without rendering, and stop at success.

        Raises:
            PhysicsError: The physics diverged.
        """

    def observe(self) -> Observation:
        """Render the cameras once and read the state."""

    def truth(self) -> Truth | None:
        """The world's own account of this moment, or None if it gives none. Policies are not shown it."""

    def progress(self) -> float:
        """The share of the task's criteria that hold, or have been met and are kept, from 0 to 1."""

    def close(self) -> None:
        """Release the simulator and its renderer. A second call does nothing."""


def checked_actions(actions: Any, *, size: int) -> Float64[np.ndarray, "steps action"]:
    """The actions as an array that a simulator may be given.

    Raises:
        ValueError: The shape is not [steps, size], or a value is not finite.
    """
    actions = np.asarray(actions, np.float64)
    if actions.ndim != 2 or actions.shape[1] != size:
        raise ValueError(f"actions have shape {list(actions.shape)}, but must have [steps, {size}]")
    finite = np.isfinite(actions).all(axis=1)
    if not finite.all():
        first = int(np.argmin(finite))
        raise ValueError(f"action {first} of {len(actions)} is not finite: {actions[first].tolist()}")
    return actions
