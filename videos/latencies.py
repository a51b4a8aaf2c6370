"""The strip of latencies of a video frame: a bar for each of the last queries."""

import functools
from collections.abc import Sequence

from PIL import Image, ImageDraw

from videos import theme
from videos.text import load_font
from videos.timeline import QueryLatency

_LEVELS_MS = tuple(step * 10**power for power in range(8) for step in (1, 2, 5))
_BARS_TOP = 18
_PITCH = theme.SIDEBAR_TEXT // theme.LATENCIES
_GAP = 3


@functools.lru_cache(maxsize=4)
def draw_latencies(latencies: tuple[QueryLatency, ...], mode: str) -> Image.Image:
    """Draw the strip, the newest query at the right: time to actions, above it the rest of the query.

    Args:
        latencies: At most `theme.LATENCIES` queries, oldest first.
        mode: The scheduling mode, which determines the colour.

    Returns:
        An image as wide as the card's text and `theme.LATENCIES_HEIGHT` high.
    """
    block = Image.new("RGB", (theme.SIDEBAR_TEXT, theme.LATENCIES_HEIGHT), theme.CARD)
    draw = ImageDraw.Draw(block)
    draw.rectangle((0, _BARS_TOP, block.width, block.height), theme.BACKGROUND)
    if not latencies:
        return block
    top_ms = scale_ms(latencies)
    colour = theme.MODE_COLOURS.get(mode, theme.TEXT)
    height = block.height - _BARS_TOP
    for age, latency in enumerate(reversed(latencies)):
        right = block.width - age * _PITCH - 1
        for until_ms, fill in (
            (latency.busy_ms, theme.language_colour(colour)),
            (latency.actions_ms, colour),
        ):
            pixels = max(1, round(height * min(1.0, until_ms / top_ms)))
            draw.rectangle((right - _PITCH + _GAP, block.height - pixels, right, block.height), fill)
    label = f"{top_ms} ms" if top_ms < 1000 else f"{top_ms / 1000:g} s"
    draw.text((block.width, 14), label, theme.MUTED, load_font(13), anchor="rs")
    draw.text((0, 14), "latest queries", theme.MUTED, load_font(13), anchor="ls")
    return block


def scale_ms(latencies: Sequence[QueryLatency]) -> int:
    """The latency of a full bar: the next of 1, 2, 5, 10 …, which changes rarely; at most 50 million ms."""
    longest = max(latency.busy_ms for latency in latencies)
    return next((level for level in _LEVELS_MS if level >= longest), _LEVELS_MS[-1])
