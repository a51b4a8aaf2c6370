"""Text layout (cleaning, wrapping, truncation with `…`), and antialiased shapes."""

import bisect
import functools
import importlib.util
import unicodedata
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFont

from videos import theme

ELLIPSIS = "…"
_LONGEST = 2000  # characters considered: far more than any block holds


@functools.cache
def load_font(size_px: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans from matplotlib's data folder, the same on every machine."""
    package = importlib.util.find_spec("matplotlib")
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).parent / "mpl-data" / "fonts" / "ttf"
    return ImageFont.truetype(folder / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"), size_px)


def clean(text: str) -> str:
    """`text` on one line without control, format, private or unassigned characters.

    An untrained model generates any sequence of tokens, including line breaks, escape codes, lone surrogates
    and direction marks.
    """
    words = text[:_LONGEST].split()
    shown = ("".join(char for char in word if unicodedata.category(char)[0] != "C") for word in words)
    return " ".join(word for word in shown if word)


def wrap(text: str, font: ImageFont.FreeTypeFont, *, width: int, max_lines: int) -> list[str]:
    """Wrap `text` into at most `max_lines` lines of `width` pixels, truncating the last with `…`."""
    lines: list[str] = []
    rest = clean(text)
    while rest and len(lines) < max_lines:
        count = _characters_that_fit(rest, font, width)
        if count == len(rest):
            lines.append(rest)
            return lines
        at_space = rest.rfind(" ", 0, count + 1)
        end = at_space if at_space > 0 else count
        lines.append(rest[:end])
        rest = rest[end:].lstrip()
    if rest:
        count = _characters_that_fit(lines[-1], font, width - round(font.getlength(ELLIPSIS)))
        shortened = lines[-1][:count].rstrip() + ELLIPSIS
        lines[-1] = shortened if font.getlength(shortened) <= width else ELLIPSIS
    return lines


def _characters_that_fit(text: str, font: ImageFont.FreeTypeFont, width: int) -> int:
    """The length of the longest prefix within `width` pixels; at least 1, so that wrapping advances."""
    lengths = range(1, len(text) + 1)
    return max(1, bisect.bisect_right(lengths, width, key=lambda length: font.getlength(text[:length])))


def cut(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """`text` on one line of at most `width` pixels."""
    return next(iter(wrap(text, font, width=width, max_lines=1)), "")


def fit(text: str, *, width: int, sizes_px: range) -> tuple[str, ImageFont.FreeTypeFont]:
    """`text` on one line in the first bold size that fits, else truncated in the last."""
    line = clean(text)
    for size in sizes_px:
        font = load_font(size, bold=True)
        if font.getlength(line) <= width:
            break
    return cut(line, font, width), font


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
