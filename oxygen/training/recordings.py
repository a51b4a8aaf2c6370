"""Recorded episodes with one action per control step."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from configs.errors import UsageError
from oxygen.typing import Float, UInt8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recording:
    """One recorded episode. Row `i` of everything is control step `i`.

    Attributes:
        images: Camera to its pixels, of any size; upright, as the policy sees them.
        state: Proprioception, in the robot's units.
        actions: The action executed at each step.
        language: The instruction.
        texts: Language task to the target text of each step; empty where there is none.
    """

    images: Mapping[str, UInt8[np.ndarray, "step _ _ 3"]]
    state: Float[np.ndarray, "step state"]
    actions: Float[np.ndarray, "step action"]
    language: str
    texts: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = {"state": self.state, "actions": self.actions, **self.images, **self.texts}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(self.actions) == 0 or len(set(lengths.values())) > 1:
            raise UsageError(
                f"episode {self.language!r}: steps are {lengths}; all need the same number, at least 1"
            )

    def __len__(self) -> int:
        """The number of control steps."""
        return len(self.actions)
