"""Draws one video frame: the cameras side by side, the policy's texts, time and latency."""

import dataclasses
import functools
from collections.abc import Mapping

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from videos import theme
from videos.shapes import draw_label, ring_mask, round_mask
from videos.text import clean, cut, fit, load_font, wrap
from videos.timeline import QueryTimeline, draw_timeline


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caption:
    """The texts and numbers of a frame.

    Attributes:
        task: The instruction.
        episode: Name of the episode, e.g. `libero_object · task 3 · init 12`.
        mode: The scheduling mode.
        time_s: Simulated seconds since the first query.
        latency_ms: Latency of the query; None if not measured.
        narration: The latest narration; empty if there is none.
        memory: The policy's memory, oldest first.
        clock: The latency profile that is charged, e.g. `jetson-thor`; empty if none.
        timeline: The timeline; None if simulated time does not pass during queries.
    """

    task: str
    episode: str
    mode: str
    time_s: float
    latency_ms: float | None = None
    narration: str = ""
    memory: tuple[str, ...] = ()
    clock: str = ""
    timeline: QueryTimeline | None = None


def compose(
    images: Mapping[str, UInt8[np.ndarray, "_ _ 3"]], caption: Caption, *, outcome: str | None = None
) -> UInt8[np.ndarray, "height width 3"]:
    """Draw one frame.

    Args:
        images: Camera name to pixels, drawn from left to right in this order.
        caption: The texts and numbers.
        outcome: Outcome of the episode, for its last frame.

    Returns:
        The frame, of size `theme.picture_size`.
    """
    cameras = len(images)
    canvas = _backdrop(caption.task, caption.episode, caption.mode, cameras).copy()
    for index, (name, pixels) in enumerate(images.items()):
        canvas.paste(_camera(name, pixels), _camera_corner(index), _camera_mask())
    height = theme.MEMORY_HEIGHT if caption.timeline is None else theme.MEMORY_HEIGHT_ABOVE_TIMELINE
    memory = _memory_block(caption.memory, caption.mode, height)
    canvas.paste(memory, (_text_left(canvas.width), theme.MEMORY_TOP))
    narration = _narration_block(caption.narration, theme.cameras_width(cameras))
    canvas.paste(narration, (theme.MARGIN, theme.NARRATION_TOP))
    if outcome is not None:
        _draw_outcome(canvas, outcome, cameras)
    picture = np.array(canvas)
    draw_moment(picture, caption)
    return picture


def draw_moment(picture: UInt8[np.ndarray, "height width 3"], caption: Caption) -> None:
    """Update the numbers and the timeline of a frame, which change with time.

    Args:
        picture: A frame drawn by `compose` with the same caption at another time; modified in place.
        caption: The caption with the time to show.
    """
    _replace(picture, theme.NUMBERS_TOP, _numbers_block(caption))
    if caption.timeline is not None:
        _replace(
            picture, theme.TIMELINE_TOP, draw_timeline(caption.timeline, caption.mode, time_s=caption.time_s)
        )


def _replace(picture: UInt8[np.ndarray, "height width 3"], top: int, block: Image.Image) -> None:
    """Paste a block of the card."""
    left = _text_left(picture.shape[1])
    picture[top : top + block.height, left : left + block.width] = np.asarray(block)


def _text_left(picture_width: int) -> int:
    return picture_width - theme.MARGIN - theme.SIDEBAR + theme.PADDING


@functools.lru_cache(maxsize=2)
def _backdrop(task: str, episode: str, mode: str, cameras: int) -> Image.Image:
    """Everything that is constant during an episode."""
    width, height = theme.picture_size(cameras)
    canvas = Image.new("RGB", (width, height), theme.BACKGROUND)
    canvas.paste(_title_block(task, episode, width - 2 * theme.MARGIN), (theme.MARGIN, 0))
    left, card_height = theme.sidebar_left(cameras), theme.BOTTOM - theme.CAMERA_TOP
    card = round_mask(theme.SIDEBAR, card_height, theme.CORNER)
    canvas.paste(theme.CARD, (left, theme.CAMERA_TOP), card)
    _draw_mode(canvas, left + theme.PADDING, mode)
    rule = theme.MEMORY_TOP - theme.PADDING
    ends = (left + theme.PADDING, rule, left + theme.SIDEBAR - theme.PADDING, rule)
    ImageDraw.Draw(canvas).line(ends, theme.LINE)
    return canvas


def _title_block(task: str, episode: str, width: int) -> Image.Image:
    block = Image.new("RGB", (width, theme.CAMERA_TOP), theme.BACKGROUND)
    draw = ImageDraw.Draw(block)
    draw.text((0, 22), cut(episode, load_font(14), width), theme.MUTED, load_font(14))
    line, font = fit(task, width=width, sizes_px=range(25, 15, -1))
    draw.text((0, 63), line, theme.TEXT, font, anchor="lm")
    return block


def _draw_mode(canvas: Image.Image, left: int, mode: str) -> None:
    draw = ImageDraw.Draw(canvas)
    top = theme.CAMERA_TOP + theme.PADDING
    draw_label(draw, left, top, "mode")
    colour = theme.MODE_COLOURS.get(mode, theme.TEXT)
    canvas.paste(colour, (left, top + 27), round_mask(12, 12, 6))
    font = load_font(21, bold=True)
    draw.text((left + 22, top + 32), cut(mode, font, theme.SIDEBAR_TEXT - 22), colour, font, anchor="lm")


def _numbers_block(caption: Caption) -> Image.Image:
    """Simulated time and latency in two columns, and the clock."""
    block = Image.new("RGB", (theme.SIDEBAR_TEXT, theme.NUMBERS_HEIGHT), theme.CARD)
    draw = ImageDraw.Draw(block)
    latency = "—" if caption.latency_ms is None else _number(caption.latency_ms)
    columns = (("time", f"{caption.time_s:.2f}", "s"), ("latency", latency, "ms"))
    font = load_font(26, bold=True)
    for column, (label, value, unit) in enumerate(columns):
        x, baseline = column * (theme.SIDEBAR_TEXT // 2), 46
        draw_label(draw, x, 0, label)
        draw.text((x, baseline), value, theme.TEXT, font, anchor="ls")
        draw.text(
            (x + round(font.getlength(value)) + 5, baseline), unit, theme.MUTED, load_font(15), anchor="ls"
        )
    small = load_font(12)
    draw.text((0, 66), cut(caption.clock, small, theme.SIDEBAR_TEXT), theme.DIMMED, small, anchor="ls")
    return block


def _number(milliseconds: float) -> str:
    """One decimal below 100 ms, none above; at most four digits, so that the unit fits."""
    if milliseconds >= 9999.5:
        return ">9999"
    return f"{milliseconds:.1f}" if milliseconds < 99.95 else f"{milliseconds:.0f}"


@functools.lru_cache(maxsize=4)
def _narration_block(narration: str, width: int) -> Image.Image:
    block = Image.new("RGB", (width, theme.BOTTOM - theme.NARRATION_TOP), theme.BACKGROUND)
    draw = ImageDraw.Draw(block)
    draw_label(draw, 0, 0, "narration")
    font = load_font(22)
    lines = wrap(narration, font, width=width, max_lines=2)
    for row, line in enumerate(lines or ["—"]):
        draw.text((0, 22 + 31 * row), line, theme.TEXT if lines else theme.LINE, font)
    return block


@functools.lru_cache(maxsize=4)
def _memory_block(memory: tuple[str, ...], mode: str, height: int) -> Image.Image:
    """The memory, oldest first; if not all fit, the newest entries and the number of earlier ones."""
    block = Image.new("RGB", (theme.SIDEBAR_TEXT, height), theme.CARD)
    draw = ImageDraw.Draw(block)
    draw_label(draw, 0, 0, "memory")
    font, indent, top = load_font(16), 18, 24
    wrapped = (wrap(text, font, width=theme.SIDEBAR_TEXT - indent, max_lines=3) for text in memory)
    items = [lines for lines in wrapped if lines]
    shown = _newest_that_fit(items, height)
    if not items:
        draw.text((0, top), "—", theme.LINE, font)
    if len(shown) < len(items):
        draw.text((indent, top), f"{len(items) - len(shown)} earlier", theme.MUTED, load_font(14))
        top += 28
    for lines in shown:
        newest = lines is items[-1]
        bullet = theme.MODE_COLOURS.get(mode, theme.TEXT) if newest else theme.MUTED
        block.paste(bullet, (1, top + 6), round_mask(8, 8, 4))
        draw.multiline_text(
            (indent, top), "\n".join(lines), theme.TEXT if newest else theme.DIMMED, font, spacing=_LEADING
        )
        top += len(lines) * _MEMORY_LINE + _MEMORY_GAP
    return block


_MEMORY_LINE = 21
_MEMORY_GAP = 12
_LEADING = 6


def _newest_that_fit(items: list[list[str]], height: int) -> list[list[str]]:
    """The longest tail that fits below the heading and the line for omitted entries."""
    room = height - 52
    count = 0
    for lines in reversed(items):
        room -= len(lines) * _MEMORY_LINE + _MEMORY_GAP
        if room < 0:
            break
        count += 1
    return items[len(items) - count :]


def _camera_corner(index: int) -> tuple[int, int]:
    return theme.MARGIN + index * (theme.CAMERA + theme.GAP), theme.CAMERA_TOP


def _camera_mask() -> Image.Image:
    return round_mask(theme.CAMERA, theme.CAMERA, theme.CORNER)


def _camera(name: str, pixels: UInt8[np.ndarray, "_ _ 3"]) -> Image.Image:
    """A camera image scaled into its square, with the camera's name in a corner."""
    scale = theme.CAMERA / max(pixels.shape[:2])
    # Looks like Pillow's resampling, in a fifth of the time.
    scaled = Image.fromarray(cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC))
    square = Image.new("RGB", (theme.CAMERA, theme.CAMERA), theme.CARD)
    square.paste(scaled, ((theme.CAMERA - scaled.width) // 2, (theme.CAMERA - scaled.height) // 2))
    tag = _tag(name)
    square.paste(tag, (12, 12), tag)
    return square


@functools.lru_cache(maxsize=8)
def _tag(name: str) -> Image.Image:
    """A camera's name on a translucent background."""
    font = load_font(13, bold=True)
    label = theme.CAMERA_LABELS.get(name, name.replace("_", " "))
    text = cut(label, font, theme.CAMERA // 2)
    width, height = round(font.getlength(text)) + 18, 24
    plate = Image.new("RGBA", (width, height), theme.BACKGROUND)
    plate.putalpha(round_mask(width, height, 8).point(lambda level: level * 3 // 4))
    ImageDraw.Draw(plate).text((9, 12), text, theme.TEXT, font, anchor="lm")
    return plate


def _draw_outcome(canvas: Image.Image, outcome: str, cameras: int) -> None:
    """Frame the cameras in the outcome's colour, and write the outcome between them."""
    colour = theme.OUTCOME_COLOURS.get(outcome, theme.TEXT)
    for index in range(cameras):
        canvas.paste(colour, _camera_corner(index), ring_mask(theme.CAMERA, theme.CORNER, 5))
    text = f"{theme.OUTCOME_SIGNS.get(outcome, '')} {clean(outcome.replace('_', ' '))}".strip()
    font = load_font(28, bold=True)
    width, height = round(font.getlength(text)) + 56, 58
    left = theme.MARGIN + (theme.cameras_width(cameras) - width) // 2
    top = theme.CAMERA_TOP + theme.CAMERA - 28 - height
    canvas.paste(colour, (left, top), round_mask(width, height, height // 2))
    centre = (left + width // 2, top + height // 2 - 1)
    ImageDraw.Draw(canvas).text(centre, text, theme.BACKGROUND, font, anchor="mm")
