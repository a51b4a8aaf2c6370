"""Where samples come from: datasets of demonstrations, whatever holds them."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from configs.errors import unknown
from oxygen.model.config import Pi05Config
from oxygen.training.samples import Samples
from oxygen.typing import UInt8


@runtime_checkable
class Dataset(Protocol):
    """What training needs of a dataset; `oxygen.training.demonstrations.Demonstrations` is one.

    Attributes:
        cameras: Names of the cameras.
    """

    cameras: tuple[str, ...]

    @property
    def columns(self) -> Any:
        """All frames' `state`, `action`, `padded`, `language`, and the texts `narration` and `memory`."""

    def pixels(self, side: int) -> UInt8[np.ndarray, "frame camera side side 3"]:
        """All frames' images, fitted into a square as the policy fits them."""


TEXTS = ("narration", "memory")
"""The language tasks for which a dataset has texts."""


def samples_of(dataset: Dataset, model: Pi05Config) -> Samples:
    """A dataset's frames through the model's cameras, at the model's size.

    Raises:
        UsageError: A camera is not there.
    """
    columns = dataset.columns
    return Samples(
        images=_through(model.cameras, dataset, model.image_size),
        state=columns.state,
        actions=columns.action,
        valid=~columns.padded,
        language=columns.language,
        texts={name: getattr(columns, name) for name in TEXTS},
    )


def _through(
    cameras: Sequence[str], dataset: Dataset, side: int
) -> UInt8[np.ndarray, "frame camera side side 3"]:
    for name in cameras:
        if name not in dataset.cameras:
            raise unknown("camera", name, dataset.cameras, remedy="The demonstrations have only those.")
    pixels = dataset.pixels(side)
    if tuple(cameras) == tuple(dataset.cameras):
        return pixels  # as they are, perhaps mapped into memory
    return pixels[:, [dataset.cameras.index(name) for name in cameras]]
