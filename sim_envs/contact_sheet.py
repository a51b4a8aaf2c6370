"""Contact sheets: grids of captioned images."""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

CAPTION = 18
TILES_PER_ROW = 2


Picture = UInt8[np.ndarray, "height width 3"]


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
