"""Keeps the latest camera picture of a running episode on disk, where `eval.watch` finds it."""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

_EVERY_S = 1.0
"""Wall time between two pictures."""
_HEIGHT = 256
"""Pixels; higher pictures are scaled down."""


class LivePicture:
    """A JPEG file of an episode's cameras side by side, replaced atomically at most once a second.

    A picture that cannot be written is left out: the episode goes on without it.

    Attributes:
        path: The file. It exists while the episode runs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_suffix(f".{os.getpid()}.partial")
        self._written = -_EVERY_S

    def show(self, images: Mapping[str, UInt8[np.ndarray, "_ _ 3"]]) -> bool:
        """Write the images, unless the last picture is recent.

        Returns:
            Whether a picture was due.
        """
        if not images or time.monotonic() - self._written < _EVERY_S:
            return False
        with contextlib.suppress(OSError, ValueError):
            _side_by_side(images).save(self._partial, "JPEG", quality=80)
            self._partial.replace(self.path)
        self._written = time.monotonic()
        return True

    def remove(self) -> None:
        """Delete the file."""
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)


def _side_by_side(images: Mapping[str, UInt8[np.ndarray, "_ _ 3"]]) -> Image.Image:
    pictures = [Image.fromarray(pixels) for pixels in images.values()]
    height = min(_HEIGHT, max(picture.height for picture in pictures))
    scaled = [
        picture.resize((max(1, picture.width * height // picture.height), height)) for picture in pictures
    ]
    whole = Image.new("RGB", (sum(picture.width for picture in scaled), height))
    left = 0
    for picture in scaled:
        whole.paste(picture, (left, 0))
        left += picture.width
    return whole
