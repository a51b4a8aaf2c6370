"""Preprocesses camera images: 8-bit RGB, resized."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from contracts.errors import UsageError, check_has
from oxygen.typing import UInt8

RESIZES = ("pad", "stretch")
"""How images are resized: with the aspect ratio kept and black bars, as openpi does, or without."""
_ONE_LEVEL = 1 / 255


def resized(
    image: UInt8[np.ndarray, "height width 3"], size: int | tuple[int, int], resize: str = "pad"
) -> UInt8[np.ndarray, "new_height new_width 3"]:
    """Resize to a height and width, or a square, by Pillow's bilinear filter (as openpi-client).

    `resize` is one of `RESIZES`.
    """
    size = (size, size) if isinstance(size, int) else size
    height, width = image.shape[:2]
    if (height, width) == size:
        return image
    from PIL import Image

    ratio = max(width / size[1], height / size[0])
    fitted = (max(1, int(width / ratio)), max(1, int(height / ratio))) if resize == "pad" else size[::-1]
    filled = np.asarray(Image.fromarray(image).resize(fitted, resample=Image.Resampling.BILINEAR))
    left, top = (size[1] - fitted[0]) // 2, (size[0] - fitted[1]) // 2
    padded = np.zeros((*size, 3), np.uint8)
    padded[top : top + fitted[1], left : left + fitted[0]] = filled
    return padded


def rgb(image: Any, name: str) -> UInt8[np.ndarray, "height width 3"]:
    """Convert an image of uint8, or of floats from 0 to 1, to 8-bit RGB.

    Floats are scaled by 255 and rounded down, as openpi does; an excess of less than one grey level, such as
    a filter's overshoot, is clipped. Refuses what is not an array [height, width, 3] of such a type and
    range.
    """
    if not isinstance(image, np.ndarray):
        raise UsageError(f"image {name!r} is a {type(image).__name__}; give a NumPy array")
    if image.ndim != 3 or image.shape[2] != 3 or not image.size:
        hint = " (channels first?)" if image.shape[:1] == (3,) else ""
        raise UsageError(f"image {name!r} has shape {image.shape}{hint}; give [height, width, 3], in color")
    if image.dtype == np.uint8:
        return image
    if not np.issubdtype(image.dtype, np.floating):
        raise UsageError(f"image {name!r} is {image.dtype}; give uint8, or floats from 0 to 1")
    darkest, brightest = image.min(), image.max()
    if not (darkest > -_ONE_LEVEL and brightest < 1 + _ONE_LEVEL):  # false for NaN too
        raise UsageError(f"image {name!r} has values from {darkest} to {brightest}; give floats from 0 to 1")
    return np.asarray(255 * image.clip(0, 1)).astype(np.uint8)


def camera_images(
    images: Mapping[str, Any], cameras: Sequence[str], side: int, *, resize: str = "pad"
) -> UInt8[np.ndarray, "camera side side 3"]:
    """The images of the policy's cameras, resized, in its order; refuses missing ones and those not RGB."""
    check_has("the observation", images, cameras)
    return np.stack([resized(rgb(images[name], name), side, resize) for name in cameras])
