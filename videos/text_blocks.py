"""The policy's texts on a video frame: narration, memory, and the heading with grade and age."""

import functools

from PIL import Image, ImageDraw

from videos import theme
from videos.caption import CaptionText
from videos.shapes import draw_label, round_mask
from videos.text import load_font, wrap
from videos.theme import Mark

_MEMORY_LINE = 24
_MEMORY_GAP = 8
_LEADING = 3
_MARK_WIDTH = 128


def draw_heading(
    label: str, text: CaptionText | None, time_s: float, *, width: int, ground: theme.Rgb
) -> Image.Image:
    """The heading of a text: its name, its grade, and the age of the observation that it describes."""
    block = Image.new("RGB", (width, theme.HEADING_HEIGHT), ground)
    draw = ImageDraw.Draw(block)
    right = draw_label(draw, 0, 2, label) + 14
    if text is None:
        return block
    middle = 9
    if text.mark is not None:
        sign, colour = theme.MARKS[text.mark]
        draw.text((right, middle), f"{sign} {text.mark}", colour, load_font(15, bold=True), anchor="lm")
        right += _MARK_WIDTH
    age = f"{max(0.0, time_s - text.seen_s):.1f} s old"
    draw.text((right, middle), age, theme.DIMMED, load_font(15), anchor="lm")
    return block


@functools.lru_cache(maxsize=4)
def draw_narration(narration: str, width: int) -> Image.Image:
    """Draw the narration in at most two lines."""
    top = theme.NARRATION_TOP + theme.HEADING_HEIGHT
    block = Image.new("RGB", (width, theme.BOTTOM - top), theme.BACKGROUND)
    draw = ImageDraw.Draw(block)
    font = load_font(25)
    lines = wrap(narration, font, width=width, max_lines=2)
    for row, line in enumerate(lines or ["—"]):
        draw.text((0, 2 + 35 * row), line, theme.TEXT if lines else theme.LINE, font)
    return block


@functools.lru_cache(maxsize=8)
def draw_memory(parts: tuple[tuple[str, Mark | None], ...], height: int) -> Image.Image:
    """Draw the parts of the memory, oldest first; if not all fit, the newest and how many are omitted."""
    block = Image.new("RGB", (theme.SIDEBAR_TEXT, height), theme.CARD)
    draw = ImageDraw.Draw(block)
    font, indent, top = load_font(18), 26, 4
    wrapped = (
        (wrap(text, font, width=theme.SIDEBAR_TEXT - indent, max_lines=3), mark) for text, mark in parts
    )
    items = [(lines, mark) for lines, mark in wrapped if lines]
    shown = _newest_that_fit([lines for lines, _ in items], height)
    if not items:
        draw.text((0, top), "—", theme.LINE, font)
    if shown < len(items):
        draw.text((indent, top), f"{len(items) - shown} earlier", theme.MUTED, load_font(15))
        top += 28
    for lines, mark in items[len(items) - shown :]:
        if mark is None:
            block.paste(theme.MUTED, (4, top + 8), round_mask(8, 8, 4))
        else:
            sign, colour = theme.MARKS[mark]
            draw.text((0, top), sign, colour, load_font(17, bold=True))
        draw.multiline_text((indent, top), "\n".join(lines), theme.TEXT, font, spacing=_LEADING)
        top += len(lines) * _MEMORY_LINE + _MEMORY_GAP
    return block


def _newest_that_fit(items: list[list[str]], height: int) -> int:
    """Number of items, counted from the last, that fit below the line for omitted ones."""
    room = height - 32
    for count, lines in enumerate(reversed(items)):
        room -= len(lines) * _MEMORY_LINE + _MEMORY_GAP
        if room < 0:
            return count
    return len(items)
