"""Episodes as robots record them, an action for every step; and the chunks of actions that training wants."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.robots.images import camera_images
from oxygen.typing import Bool, Float, Float32, Int64, UInt8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recording:
    """One episode. Row `i` of everything is control step `i`.

    Attributes:
        images: Camera to its pixels, of any size; upright, as the policy is shown them.
        state: Proprioception, in the robot's units.
        actions: What was done at each step.
        language: The instruction.
        texts: For every language task what should be said at each step; empty where nobody knows.
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
                f"episode {self.language!r}: steps are {lengths}; give as many of each, at least one"
            )

    def __len__(self) -> int:
        """The number of control steps."""
        return len(self.actions)

    def seen(
        self, steps: Int64[np.ndarray, " frame"], model: Pi05Config
    ) -> UInt8[np.ndarray, "frame camera side side 3"]:
        """What the model's cameras saw at some steps, fitted into its square as the policy fits it.

        Raises:
            UsageError: A camera is missing, or its images are no RGB images.
        """

        def at(step: int) -> np.ndarray:
            images = {name: pixels[step] for name, pixels in self.images.items()}
            return camera_images(images, model.cameras, model.image_size, resize=model.resize)

        return np.stack([at(int(step)) for step in steps])

    def chunks(
        self, steps: Int64[np.ndarray, " frame"], horizon: int
    ) -> tuple[Float32[np.ndarray, "frame horizon action"], Bool[np.ndarray, "frame horizon"]]:
        """The actions from each of some steps on, and which of them lie within the episode.

        After its end the last action is repeated, and counts for nothing.
        """
        ahead = steps[:, None] + np.arange(horizon)[None]
        within = ahead < len(self)
        return self.actions[np.minimum(ahead, len(self) - 1)].astype(np.float32), within
