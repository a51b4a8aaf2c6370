"""What every world shares: the identity of an episode, what is observed, the verbs of a simulator."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from jaxtyping import Float64, UInt8

from sim_envs.truth.account import Truth


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class EpisodeKey:
    """The identity of an episode: everything random about it is a function of these four.

    Attributes:
        suite: Name of the task suite, e.g. `libero_object`.
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
        images: Camera name (`image`, `wrist_image`) to pixels, upright as the published policies expect them.
        state: Proprioception; for LIBERO eef position (m), eef axis-angle (rad), two gripper joints (m).
        language: The instruction, in LIBERO's own words.
    """

    images: Mapping[str, UInt8[np.ndarray, "height width 3"]]
    state: Float64[np.ndarray, " state"]
    language: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advance:
    """What came of a piece of open-loop control.

    Attributes:
        steps: Control steps taken; fewer than the actions given if the task was solved on the way.
        success: Whether the task's goal held after the last step taken.
    """

    steps: int
    success: bool


class World(Protocol):
    """A simulator with one task loaded: physics in `advance`, pictures in `observe`, nothing of a policy."""

    @property
    def control_hz(self) -> float:
        """Control steps per simulated second."""

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        """Reseed, load the initial state `init_id` and let it settle. No image is rendered."""

    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> Advance:
        """Run the actions one control step each, without rendering, and stop at success."""

    def observe(self) -> Observation:
        """Render the cameras once and read the state."""

    def truth(self) -> Truth | None:
        """The world's own account of this moment, or None if it gives none. Policies are not shown it."""

    def close(self) -> None:
        """Release the simulator and its renderer. A second call does nothing."""
