"""Draws a frame of two episodes side by side on one clock."""

import dataclasses
import functools

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from videos import theme
from videos.panel import Caption, draw_heading, draw_narration, draw_progress, format_milliseconds
from videos.text import cut, draw_label, fit, load_font, round_mask
from videos.timeline import AXIS_BOTTOM, draw_latencies, draw_timeline

_CAMERA = 448
_WIDTH = 3 * theme.MARGIN + 2 * _CAMERA
_NAME_TOP = 88
_CAMERA_TOP = _NAME_TOP + 44
_PROGRESS_TOP = _CAMERA_TOP + _CAMERA + 12
_NARRATION_TOP = _PROGRESS_TOP + theme.PROGRESS_HEIGHT + 18
_NARRATION_HEIGHT = theme.HEADING_HEIGHT + 76
_CARD_HEIGHT = AXIS_BOTTOM + 2 * 14
_NUMBERS_LEFT = 14 + theme.SIDEBAR_TEXT + 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two episodes at one time."""

    name: str  # its label, such as the mode
    view: UInt8[np.ndarray, "_ _ 3"]  # the first camera's image in its video, see `first_camera`
    caption: Caption  # its caption; the last one after its end
    outcome: str | None = None  # its outcome; None while it runs


def first_camera(frame: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "side side 3"]:
    """The first camera's image of a video's frame.

    Raises:
        ValueError: The frame has the layout of another version.
    """
    if frame.shape[0] not in theme.HEIGHTS:
        known = " or ".join(map(str, theme.HEIGHTS))
        raise ValueError(f"its frames are {frame.shape[0]} pixels high, and this version's {known}")
    top, left = theme.CAMERA_TOP, theme.MARGIN
    return frame[top : top + theme.CAMERA, left : left + theme.CAMERA]


def compose_pair(sides: tuple[Side, Side], *, time_s: float) -> UInt8[np.ndarray, "height width 3"]:
    """Draw one frame of the episodes, from left to right, at a simulated time of both; its sizes are even."""
    caption = sides[0].caption
    has_texts = any(side.caption.has_texts for side in sides)
    has_card = has_texts or any(side.caption.timeline is not None for side in sides)
    card_top = _NARRATION_TOP + (_NARRATION_HEIGHT if has_texts else 0)
    height = card_top + (_CARD_HEIGHT + theme.MARGIN if has_card else 0)
    canvas = _title(caption.task, caption.episode, f"{time_s:.2f} s", height + height % 2).copy()
    for column, side in enumerate(sides):
        left = theme.MARGIN + column * (_CAMERA + theme.MARGIN)
        _draw_episode(canvas, left, side)
        if side.caption.has_texts:
            _draw_text(canvas, left, side.caption)
        if has_card:
            _draw_card(canvas, left, card_top, side.caption)
    return np.array(canvas)


def _draw_episode(canvas: Image.Image, left: int, side: Side) -> None:
    caption, draw, middle = side.caption, ImageDraw.Draw(canvas), _NAME_TOP + 20
    colour, font = theme.MODE_COLOURS.get(caption.mode, theme.TEXT), load_font(23, bold=True)
    canvas.paste(colour, (left, middle - 7), round_mask(14, 14, 7))
    draw.text((left + 24, middle), cut(side.name, font, _CAMERA // 2), colour, font, anchor="lm")
    if side.outcome is not None:
        sign, colour = theme.OUTCOMES[side.outcome]
        text = f"{sign} {side.outcome.replace('_', ' ')} at {caption.time_s:.2f} s"
        draw.text((left + _CAMERA, middle), text, colour, load_font(17, bold=True), anchor="rm")
    view = Image.fromarray(cv2.resize(side.view, (_CAMERA, _CAMERA), interpolation=cv2.INTER_AREA))
    canvas.paste(view, (left, _CAMERA_TOP), round_mask(_CAMERA, _CAMERA, theme.CORNER))
    canvas.paste(draw_progress(caption, _CAMERA), (left, _PROGRESS_TOP))


def _draw_text(canvas: Image.Image, left: int, caption: Caption) -> None:
    text = caption.narration or caption.memory
    task = "narration" if text is caption.narration else "memory"
    heading = draw_heading(task, text, caption.time_s, width=_CAMERA, ground=theme.BACKGROUND)
    canvas.paste(heading, (left, _NARRATION_TOP))
    shown = draw_narration("" if text is None else text.text, _CAMERA)
    canvas.paste(shown, (left, _NARRATION_TOP + theme.HEADING_HEIGHT))


def _draw_card(canvas: Image.Image, left: int, top: int, caption: Caption) -> None:
    """The latest queries in simulated time, or their latencies, on a card."""
    card = round_mask(_CAMERA, _CARD_HEIGHT, theme.CORNER)
    canvas.paste(theme.CARD, (left, top), card)
    if caption.timeline is None:  # simulated time stops during queries
        strip = draw_latencies(caption.latencies, caption.mode)
    else:
        timeline = draw_timeline(caption.timeline, caption.mode, time_s=caption.time_s)
        strip = timeline.crop((0, 1, timeline.width, AXIS_BOTTOM))  # without its legend
    canvas.paste(strip, (left + 14, top + 14))
    _draw_numbers(ImageDraw.Draw(canvas), (left + _NUMBERS_LEFT, top + 16), caption)


def _draw_numbers(draw: ImageDraw.ImageDraw, at: tuple[int, int], caption: Caption) -> None:
    """Latency of the latest query: until its actions, and until the next query."""
    if not caption.latencies:
        return
    latest = caption.latencies[-1]
    for row, (label, value) in enumerate((("actions", latest.actions_ms), ("next query", latest.busy_ms))):
        (left, top), font = (at[0], at[1] + row * 54), load_font(20, bold=True)
        draw_label(draw, left, top, label)
        text = format_milliseconds(value)
        draw.text((left, top + 38), text, theme.TEXT, font, anchor="ls")
        unit = (left + round(font.getlength(text)) + 5, top + 38)
        draw.text(unit, "ms", theme.MUTED, load_font(14), anchor="ls")


@functools.lru_cache(maxsize=2)
def _title(task: str, episode: str, time: str, height: int) -> Image.Image:
    canvas = Image.new("RGB", (_WIDTH, height), theme.BACKGROUND)
    draw = ImageDraw.Draw(canvas)
    width = _WIDTH - 2 * theme.MARGIN - 150
    draw.text((theme.MARGIN, 20), cut(episode, load_font(14), width), theme.MUTED, load_font(14))
    line, font = fit(task, width=width, sizes_px=range(24, 15, -1))
    draw.text((theme.MARGIN, 60), line, theme.TEXT, font, anchor="lm")
    draw.text((_WIDTH - theme.MARGIN, 60), time, theme.TEXT, load_font(28, bold=True), anchor="rm")
    return canvas
