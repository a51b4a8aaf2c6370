"""What a policy is given in a query."""

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from contracts.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionPrefix:
    """The actions of the last chunk that the robot executes until the next chunk is ready."""

    first: int  # index of the action executed at the time of the observation
    delay: int  # expected number of them, including the first

    def __post_init__(self) -> None:
        if self.first < 0 or self.delay < 1:
            raise UsageError(f"action prefix {self}: `first` is 0 or more, and `delay` at least 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """The input of a policy query.

    Attributes:
        images: Camera name to pixels [height, width, 3], as declared in the suite's interface.
        state: Proprioception [state], as declared in the suite's interface.
        language: The instruction, or the prompt composed of it and of fed-back texts.
        feedback: The parts of that prompt, if it is composed: `instruction`, `memory`, `subtask`.
        delay_steps: Expected number of control steps until the answer is available.
        executing: The actions [action, width] of the last chunk that the robot executes in these; the new
            chunk usually starts after as many.
        action_prefix: The same as a part of the policy's last chunk, towards which it guides denoising; None
            if it does not.
        history: What was observed in the control steps before, oldest first, for policies that take it; less
            at the beginning of an episode.
    """

    images: Mapping[str, NDArray[np.uint8]]
    state: NDArray[np.float64]
    language: str
    feedback: Mapping[str, str] = dataclasses.field(default_factory=dict)
    delay_steps: int = 0
    executing: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    action_prefix: ActionPrefix | None = None
    history: "tuple[Observation, ...]" = ()
