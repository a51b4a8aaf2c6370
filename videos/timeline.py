"""The timeline of a video frame (queries and idle control steps), and its strip of latencies."""

import dataclasses
import functools
import math

from PIL import Image, ImageDraw

from contracts.latency import Latency
from videos import theme
from videos.text import load_font, round_mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuerySpan:
    """One query in simulated time, in seconds; `math.inf` for events that have not happened."""

    issued_s: float  # when it was issued
    actions_s: float  # when its actions became available
    free_s: float  # when the next query could be issued


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryTimeline:
    """The content of the timeline. What lies after the displayed time is not drawn."""

    # The queries of at least the last `theme.TIMELINE_S` seconds, including the current one.
    queries: tuple[QuerySpan, ...] = ()
    # When the robot was idle: start and end, simulated seconds.
    idle: tuple[tuple[float, float], ...] = ()
    continued: tuple[tuple[float, float], ...] = ()  # when it continued the previous chunk during a query


BAR_TOP = 54
BAR_HEIGHT = 26
LANGUAGE_INSET = 7
IDLE_TOP = BAR_TOP + BAR_HEIGHT + 3
IDLE_HEIGHT = 14
CONTINUED_INSET = 5
"""Rows of the timeline, pixels from its top; bars of language and of the previous chunk are thinner."""

_TRACK_BOTTOM = IDLE_TOP + IDLE_HEIGHT
_CURSOR = 2
_PILL_TOP = 19
_PILL_HEIGHT = 24
_AXIS_TOP = _TRACK_BOTTOM + 5
AXIS_BOTTOM = _AXIS_TOP + 14
_LEGEND_TOP = _AXIS_TOP + 22
_LEGEND_LINE = 20
_LABEL_S = 0.2  # half the width of a label of the axis
_SAME_MOMENT_S = 1e-6  # tolerance of times, which are sums of control steps' durations


def draw_timeline(timeline: QueryTimeline, mode: str, *, time_s: float) -> Image.Image:
    """Draw the timeline with `time_s` at the right edge, as wide as the card's text, in the mode's colour."""
    computing = any(_is_within(query.issued_s, query.free_s, time_s) for query in timeline.queries)
    idle = any(_is_within(*interval, time_s) for interval in timeline.idle)
    block = _base(mode, computing=computing, idle=idle).copy()
    draw = ImageDraw.Draw(block)
    colour = theme.MODE_COLOURS.get(mode, theme.TEXT)
    for query in timeline.queries:
        actions, free = min(query.actions_s, time_s), min(query.free_s, time_s)
        language = (BAR_TOP + LANGUAGE_INSET, BAR_HEIGHT - 2 * LANGUAGE_INSET)
        _draw_bar(draw, actions - time_s, free - time_s, language, theme.language_colour(colour))
        # A pixel apart, so that consecutive queries can be counted.
        _draw_bar(draw, query.issued_s - time_s, actions - time_s, (BAR_TOP, BAR_HEIGHT), colour, gap=1)
    quiet = (IDLE_TOP + CONTINUED_INSET, IDLE_HEIGHT - 2 * CONTINUED_INSET)
    for intervals, rows, fill in (
        (timeline.continued, quiet, theme.CONTINUED),
        (timeline.idle, (IDLE_TOP, IDLE_HEIGHT), theme.IDLE),
    ):
        for start, end in intervals:
            _draw_bar(draw, start - time_s, min(end, time_s) - time_s, rows, fill)
    return block


def column_at(seconds: float) -> int:
    """The column of a time relative to the displayed one, in seconds; negative is past."""
    return theme.SIDEBAR_TEXT - _CURSOR + round(seconds * theme.TIMELINE_PIXELS_PER_S)


def _is_within(start_s: float, end_s: float, time_s: float) -> bool:
    return start_s <= time_s + _SAME_MOMENT_S < end_s


def _draw_bar(
    draw: ImageDraw.ImageDraw,
    start: float,
    end: float,
    rows: tuple[int, int],
    fill: theme.Rgb,
    *,
    gap: int = 0,
) -> None:
    """Draw a bar between two times relative to the displayed one; `rows` are its top and height."""
    if end * theme.TIMELINE_PIXELS_PER_S < -theme.SIDEBAR_TEXT:
        return
    left, right = max(column_at(start) + gap, 0), column_at(end)
    if left < right:
        top, height = rows
        draw.rectangle((left, top, right - 1, top + height - 1), fill)


@functools.lru_cache(maxsize=8)
def _base(mode: str, *, computing: bool, idle: bool) -> Image.Image:
    block = Image.new("RGB", (theme.SIDEBAR_TEXT, theme.TIMELINE_HEIGHT), theme.CARD)
    draw = ImageDraw.Draw(block)
    draw.line((0, 0, theme.SIDEBAR_TEXT, 0), theme.LINE)
    colour = theme.MODE_COLOURS.get(mode, theme.TEXT)
    right = _draw_pill(block, 0, "computing", colour if computing else None)
    _draw_pill(block, right + 8, "idle", theme.IDLE if idle else None)
    for top, bottom in ((BAR_TOP, IDLE_TOP - 3), (IDLE_TOP, _TRACK_BOTTOM)):
        draw.rectangle((0, top, theme.SIDEBAR_TEXT - 1, bottom - 1), theme.BACKGROUND)
    for seconds in range(1, math.ceil(theme.TIMELINE_S - _LABEL_S)):
        x = column_at(-float(seconds))
        draw.line((x, BAR_TOP, x, _TRACK_BOTTOM - 1), theme.LINE)
        draw.text((x, _AXIS_TOP), f"−{seconds} s", theme.MUTED, load_font(11), anchor="ma")
    draw.text((theme.SIDEBAR_TEXT, _AXIS_TOP), "now", theme.MUTED, load_font(11), anchor="ra")
    left = theme.SIDEBAR_TEXT - _CURSOR
    draw.rectangle((left, BAR_TOP - 3, theme.SIDEBAR_TEXT - 1, _TRACK_BOTTOM + 1), theme.TEXT)
    draw_legend(draw, (0, _LEGEND_TOP), mode, columns=2, busy="language")
    return block


def draw_legend(
    draw: ImageDraw.ImageDraw, at: tuple[int, int], mode: str, *, columns: int, busy: str
) -> None:
    """Draw the legend of the bars: the policy's, then the robot's; `busy` names what follows the actions."""
    colour = theme.MODE_COLOURS.get(mode, theme.TEXT)
    entries = (
        ("actions", colour, 10),
        (busy, theme.language_colour(colour), 6),
        ("idle", theme.IDLE, 10),
        ("old chunk", theme.CONTINUED, 4),
    )
    for number, (word, fill, height) in enumerate(entries):
        row, column = divmod(number, columns)
        left, middle = at[0] + column * 112, at[1] + row * _LEGEND_LINE + 7
        top = middle - height // 2
        draw.rectangle((left, top, left + 15, top + height - 1), fill)
        draw.text((left + 23, middle), word, theme.DIMMED, load_font(13), anchor="lm")


def _draw_pill(block: Image.Image, left: int, word: str, lit: theme.Rgb | None) -> int:
    """Draw a word on a pill, coloured if `lit`; return the pill's right edge."""
    font = load_font(14, bold=True)
    width = round(font.getlength(word)) + 22
    plate = round_mask(width, _PILL_HEIGHT, _PILL_HEIGHT // 2)
    block.paste(lit or theme.BACKGROUND, (left, _PILL_TOP), plate)
    centre = (left + width // 2, _PILL_TOP + _PILL_HEIGHT // 2)
    ImageDraw.Draw(block).text(centre, word, theme.BACKGROUND if lit else theme.MUTED, font, anchor="mm")
    return left + width


_LEVELS_MS = tuple(step * 10**power for power in range(8) for step in (1, 2, 5))
_BARS_TOP = 18
_PITCH = theme.SIDEBAR_TEXT // theme.LATENCIES
_GAP = 3


@functools.lru_cache(maxsize=4)
def draw_latencies(latencies: tuple[Latency, ...], mode: str) -> Image.Image:
    """Draw the strip, the newest query at the right: time to actions, above it the rest of the query.

    Shows at most `theme.LATENCIES` queries, oldest first, in the mode's colour; as wide as the card's text.
    """
    block = Image.new("RGB", (theme.SIDEBAR_TEXT, theme.LATENCIES_HEIGHT), theme.CARD)
    draw = ImageDraw.Draw(block)
    draw.rectangle((0, _BARS_TOP, block.width, block.height), theme.BACKGROUND)
    if not latencies:
        return block
    longest = max(latency.busy_ms for latency in latencies)
    # The next of 1, 2, 5, 10 …, which changes rarely.
    top_ms = next((level for level in _LEVELS_MS if level >= longest), _LEVELS_MS[-1])
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
