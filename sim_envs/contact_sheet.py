"""Contact sheets: captioned tiles in rows, each of pictures of one size side by side."""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

CAPTION = 18
TILES_PER_ROW = 2


def side_by_side(images: Iterable[UInt8[np.ndarray, "height width 3"]]) -> Image.Image:
    """Pictures of one height, from left to right."""
    return Image.fromarray(np.concatenate(list(images), axis=1))


def one_below_the_other(pictures: Iterable[Image.Image]) -> Image.Image:
    """Pictures of one width, from top to bottom."""
    return Image.fromarray(np.concatenate([np.asarray(picture) for picture in pictures]))


def sheet(tiles: Mapping[str, Image.Image]) -> Image.Image:
    """Tiles of one size, each below its caption, row by row.

    Args:
        tiles: At least one, by caption.
    """
    first = next(iter(tiles.values()))
    width, height = first.width, first.height + CAPTION
    canvas = Image.new("RGB", (TILES_PER_ROW * width, -(-len(tiles) // TILES_PER_ROW) * height), "white")
    for number, (caption, tile) in enumerate(tiles.items()):
        row, column = divmod(number, TILES_PER_ROW)
        ImageDraw.Draw(canvas).text((column * width + 4, row * height + 3), caption, fill="black")
        canvas.paste(tile, (column * width, row * height + CAPTION))
    return canvas
