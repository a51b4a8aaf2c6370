"""Recorded episodes with one action per control step, and the action chunks cut from them."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.robots.images import camera_images
from oxygen.typing import Bool, Float, Float32, Int64, UInt8


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

    def model_images(
        self, steps: Int64[np.ndarray, " frame"], model: Pi05Config
    ) -> UInt8[np.ndarray, "frame camera side side 3"]:
        """The images of the model's cameras at some steps, resized as the policy resizes them.

        Raises:
            UsageError: A camera is missing, or its images are not RGB.
        """

        def at(step: int) -> np.ndarray:
            images = {name: pixels[step] for name, pixels in self.images.items()}
            return camera_images(images, model.cameras, model.image_size, resize=model.resize)

        return np.stack([at(int(step)) for step in steps])

    def chunks(
        self, steps: Int64[np.ndarray, " frame"], horizon: int
    ) -> tuple[Float32[np.ndarray, "frame horizon action"], Bool[np.ndarray, "frame horizon"]]:
        """The action chunks that start at some steps, and which actions lie within the episode.

        Past the end, the last action is repeated and marked invalid.
        """
        chunk_steps = steps[:, None] + np.arange(horizon)[None]
        valid = chunk_steps < len(self)
        return self.actions[np.minimum(chunk_steps, len(self) - 1)].astype(np.float32), valid
