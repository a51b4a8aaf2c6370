"""Converts datasets of demonstrations to training samples."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from configs.errors import unknown
from oxygen.model.config import Pi05Config
from oxygen.training.samples import Samples
from oxygen.typing import UInt8


@runtime_checkable
class Dataset(Protocol):
    """A dataset to train on, such as `oxygen.training.demonstrations.Demonstrations`.

    Attributes:
        cameras: Names of the cameras.
    """

    cameras: tuple[str, ...]

    @property
    def columns(self) -> Any:
        """All frames' `state`, `action`, `padded`, `language`, and the texts `narration` and `memory`."""

    def pixels(self, side: int, resize: str) -> UInt8[np.ndarray, "frame camera side side 3"]:
        """All frames' images as squares, resized as the policy resizes them."""


TEXTS = ("narration", "memory")
"""The language tasks for which a dataset has texts."""


def samples_of(dataset: Dataset, model: Pi05Config) -> Samples:
    """The frames of a dataset, with the images of the model's cameras at its size.

    Raises:
        UsageError: A camera is missing.
    """
    columns = dataset.columns
    return Samples(
        images=_images(dataset, model),
        state=columns.state,
        actions=columns.action,
        valid=~columns.padded,
        language=columns.language,
        texts={name: getattr(columns, name) for name in TEXTS},
    )


def _images(dataset: Dataset, model: Pi05Config) -> UInt8[np.ndarray, "frame camera side side 3"]:
    cameras = model.cameras
    for name in cameras:
        if name not in dataset.cameras:
            raise unknown("camera", name, dataset.cameras, remedy="The demonstrations have no others.")
    pixels = dataset.pixels(model.image_size, model.resize)
    if tuple(cameras) == tuple(dataset.cameras):
        return pixels  # keeps a memory map
    return pixels[:, [dataset.cameras.index(name) for name in cameras]]
