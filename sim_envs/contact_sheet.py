"""Contact sheets: grids of captioned images."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from configs.errors import unknown
from configs.paths import usable_file

CAPTION = 18
TILES_PER_ROW = 2
SUFFIXES = (".jpg", ".jpeg", ".png")


Picture = UInt8[np.ndarray, "height width 3"]


def usable_image(path: Path) -> Path:
    """The path, if an image can be written there.

    Raises:
        UsageError: It is of another format, a folder, or its folder cannot be used.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise unknown("image format", path.suffix, SUFFIXES, remedy=f"In {str(path)!r}.")
    return usable_file(path, "the image")


def side_by_side(images: Iterable[Picture]) -> Image.Image:
    """Images of equal height, from left to right."""
    return Image.fromarray(np.concatenate(list(images), axis=1))


def sheet(tiles: Mapping[str, Image.Image]) -> Image.Image:
    """Arrange tiles of one size in rows, each below its caption.

    Args:
        tiles: Caption to tile; at least one.
    """
    first = next(iter(tiles.values()))
    width, height = first.width, first.height + CAPTION
    canvas = Image.new("RGB", (TILES_PER_ROW * width, -(-len(tiles) // TILES_PER_ROW) * height), "white")
    for number, (caption, tile) in enumerate(tiles.items()):
        row, column = divmod(number, TILES_PER_ROW)
        ImageDraw.Draw(canvas).text((column * width + 4, row * height + 3), caption, fill="black")
        canvas.paste(tile, (column * width, row * height + CAPTION))
    return canvas
