"""Antialiased shapes and small headings."""

import functools

from PIL import Image, ImageChops, ImageDraw

from videos import theme
from videos.text import load_font

_OVERSAMPLING = 4


@functools.lru_cache(maxsize=32)
def round_mask(width: int, height: int, radius: int) -> Image.Image:
    """An antialiased mask of a rectangle with round corners, by oversampling."""
    large = Image.new("L", (width * _OVERSAMPLING, height * _OVERSAMPLING))
    box = (0, 0, large.width - 1, large.height - 1)
    ImageDraw.Draw(large).rounded_rectangle(box, radius * _OVERSAMPLING, 255)
    return large.resize((width, height), Image.Resampling.BOX)


@functools.lru_cache(maxsize=4)
def ring_mask(side: int, radius: int, thickness: int) -> Image.Image:
    """A mask of the frame of a square with round corners."""
    inner = round_mask(side - 2 * thickness, side - 2 * thickness, radius - thickness)
    hole = Image.new("L", (side, side))
    hole.paste(inner, (thickness, thickness))
    return ImageChops.subtract(round_mask(side, side, radius), hole)


def draw_label(draw: ImageDraw.ImageDraw, left: int, top: int, text: str) -> int:
    """Draw a small heading in spaced capitals; return its right edge."""
    font = load_font(13, bold=True)
    for letter in text.upper():
        draw.text((left, top), letter, theme.MUTED, font)
        left += round(font.getlength(letter)) + 1
    return left
