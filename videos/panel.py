"""Draws one video frame: the cameras side by side, time, and the policy's texts with grades and latency."""

import dataclasses
import functools
import math
from collections.abc import Mapping

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from contracts.latency import Latency
from videos import theme
from videos.text import cut, draw_label, fit, load_font, ring_mask, round_mask, wrap
from videos.theme import Mark
from videos.timeline import AXIS_BOTTOM, QueryTimeline, draw_latencies, draw_legend, draw_timeline


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptionText:
    """A text of the policy."""

    text: str
    seen_s: float  # simulated time of the observation that it describes
    mark: Mark | None = None  # its grade on delivery; None if there is no ground truth
    # The parts of a memory or textual memory, oldest first, with their grades.
    parts: tuple[tuple[str, Mark | None], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caption:
    """The texts and numbers of a frame."""

    task: str  # the instruction
    # Name of the episode, e.g. `libero_object · task 3 · init 12`.
    episode: str
    mode: str  # the scheduling mode
    policy: str = ""  # name of the policy
    # Whether the policy writes texts; a frame without them has neither a sidebar nor a narration.
    has_texts: bool = True
    time_s: float  # simulated seconds since the first query
    limit_s: float | None = None  # the episode's limit, simulated seconds; None without one
    latencies: tuple[Latency, ...] = ()  # the latest queries, oldest first, the current one included
    narration: CaptionText | None = None  # the latest narration; None if there is none
    memory: CaptionText | None = None  # the latest memory; None if there is none
    textual_memory: CaptionText | None = None  # the latest textual memory; None if there is none
    # The latency profile that is charged, e.g. `jetson-thor-oxygen-2603`; empty if none.
    clock: str = ""
    timeline: QueryTimeline | None = None  # the timeline; None if simulated time does not pass during queries


def compose(
    images: Mapping[str, UInt8[np.ndarray, "_ _ 3"]], caption: Caption, *, outcome: str | None = None
) -> UInt8[np.ndarray, "height width 3"]:
    """Draw one frame, of size `picture_size`.

    Cameras are drawn from left to right. The first is current; the others are labelled as of the last query.
    The last frame of an episode has its `outcome`.
    """
    cameras = len(images)
    words = caption.task, caption.episode, caption.policy, caption.mode
    canvas = _backdrop(*words, size=picture_size(caption, cameras), has_texts=caption.has_texts).copy()
    for index, (name, pixels) in enumerate(images.items()):
        tag = _label(name) if index == 0 else f"{_label(name)}, last query"
        canvas.paste(_camera(tag, pixels), _camera_corner(index), _camera_mask())
    if outcome is not None:
        sign, colour = theme.OUTCOMES[outcome]
        for index in range(cameras):
            canvas.paste(colour, _camera_corner(index), ring_mask(theme.CAMERA, theme.CORNER, 5))
        text = f"{sign} {outcome.replace('_', ' ')}"
        font = load_font(28, bold=True)
        width, height = round(font.getlength(text)) + 56, 58
        left = theme.MARGIN + (theme.CAMERA - width) // 2
        top = theme.CAMERA_TOP + theme.CAMERA - 28 - height
        canvas.paste(colour, (left, top), round_mask(width, height, height // 2))
        centre = (left + width // 2, top + height // 2 - 1)
        ImageDraw.Draw(canvas).text(centre, text, theme.BACKGROUND, font, anchor="mm")
    if caption.has_texts:
        _draw_texts(canvas, caption)
    picture = np.array(canvas)
    draw_moment(picture, caption)
    return picture


def picture_size(caption: Caption, cameras: int) -> tuple[int, int]:
    """Width and height of the frames of an episode."""
    return theme.picture_size(cameras, texts=caption.has_texts, timeline=caption.timeline is not None)


def _draw_texts(canvas: Image.Image, caption: Caption) -> None:
    left = _text_left(canvas.width)
    canvas.paste(draw_latencies(caption.latencies, caption.mode), (left, theme.LATENCIES_TOP))
    below = theme.HEADING_HEIGHT
    for _, text, top, height in _memories(caption):
        parts = () if text is None else text.parts
        canvas.paste(draw_memory(parts, height - below), (left, top + below))
    narration = "" if caption.narration is None else caption.narration.text
    block = draw_narration(narration, _cameras_width(caption, canvas.width))
    canvas.paste(block, (theme.MARGIN, theme.NARRATION_TOP + below))


def draw_first_camera(
    picture: UInt8[np.ndarray, "height width 3"], name: str, pixels: UInt8[np.ndarray, "_ _ 3"]
) -> None:
    """Replace the first camera's image of a frame, in place."""
    (left, top), side = _camera_corner(0), theme.CAMERA
    canvas = Image.new("RGB", (side, side), theme.BACKGROUND)
    canvas.paste(_camera(_label(name), pixels), (0, 0), _camera_mask())
    picture[top : top + side, left : left + side] = np.asarray(canvas)


def draw_moment(picture: UInt8[np.ndarray, "height width 3"], caption: Caption) -> None:
    """Update what changes with time in a frame of `compose`: numbers, ages of texts, progress and timeline.

    The frame is modified in place; `caption` is that of the frame at the time to show.
    """
    left, time_s = _text_left(picture.shape[1]), caption.time_s
    width = _cameras_width(caption, picture.shape[1])
    _replace(picture, (theme.MARGIN, theme.PROGRESS_TOP), draw_progress(caption, width))
    if not caption.has_texts:
        _replace(picture, (theme.MARGIN, theme.PLAIN_NUMBERS_TOP), _draw_plain_numbers(caption, width))
        if caption.timeline is not None:
            timeline = draw_timeline(caption.timeline, caption.mode, time_s=time_s)
            bars = timeline.crop((0, 1, timeline.width, AXIS_BOTTOM))  # without its legend
            _replace(picture, (theme.MARGIN + theme.PADDING, theme.PLAIN_CARD_TOP + 12), bars)
        return
    _replace(picture, (left, theme.NUMBERS_TOP), _draw_numbers(caption))
    narration = draw_heading("narration", caption.narration, time_s, width=width, ground=theme.BACKGROUND)
    _replace(picture, (theme.MARGIN, theme.NARRATION_TOP), narration)
    for label, text, top, _ in _memories(caption):
        heading = draw_heading(label, text, time_s, width=theme.SIDEBAR_TEXT, ground=theme.CARD)
        _replace(picture, (left, top), heading)
    if caption.timeline is not None:
        timeline = draw_timeline(caption.timeline, caption.mode, time_s=time_s)
        _replace(picture, (left, theme.TIMELINE_TOP), timeline)


def _memories(caption: Caption) -> list[tuple[str, CaptionText | None, int, int]]:
    """Label, text, top and height of each memory in the sidebar, which they share equally."""
    height = theme.MEMORY_HEIGHT if caption.timeline is None else theme.MEMORY_HEIGHT_ABOVE_TIMELINE
    shown = [("memory", caption.memory), ("goals", caption.textual_memory)]
    shown = [each for each in shown if each[1] is not None] or shown[:1]
    each_height = height // len(shown)
    return [
        (label, text, theme.MEMORY_TOP + index * each_height, each_height)
        for index, (label, text) in enumerate(shown)
    ]


def _replace(picture: UInt8[np.ndarray, "height width 3"], at: tuple[int, int], block: Image.Image) -> None:
    left, top = at
    picture[top : top + block.height, left : left + block.width] = np.asarray(block)


def _cameras_width(caption: Caption, picture_width: int) -> int:
    sidebar = theme.SIDEBAR + theme.MARGIN if caption.has_texts else 0
    return picture_width - sidebar - 2 * theme.MARGIN


def _text_left(picture_width: int) -> int:
    return picture_width - theme.MARGIN - theme.SIDEBAR + theme.PADDING


@functools.lru_cache(maxsize=2)
def _backdrop(
    task: str, episode: str, policy: str, mode: str, *, size: tuple[int, int], has_texts: bool
) -> Image.Image:
    width, height = size
    canvas = Image.new("RGB", (width, height), theme.BACKGROUND)
    room = width - 2 * theme.MARGIN
    title = Image.new("RGB", (room, theme.CAMERA_TOP), theme.BACKGROUND)  # its edges clip accents
    draw = ImageDraw.Draw(title)
    small, bold = load_font(14), load_font(14, bold=True)
    whose = "" if has_texts else cut(policy, bold, room // 2)
    draw.text((room, 22), whose, theme.TEXT, bold, anchor="ra")
    draw.text((0, 22), cut(episode, small, room - 16 - round(bold.getlength(whose))), theme.MUTED, small)
    line, font = fit(task, width=room, sizes_px=range(25, 15, -1))
    draw.text((0, 63), line, theme.TEXT, font, anchor="lm")
    canvas.paste(title, (theme.MARGIN, 0))
    draw = ImageDraw.Draw(canvas)
    if not has_texts:
        if height > theme.PLAIN_HEIGHT:
            card = round_mask(room, theme.PLAIN_CARD_HEIGHT, theme.CORNER)
            canvas.paste(theme.CARD, (theme.MARGIN, theme.PLAIN_CARD_TOP), card)
            beside = theme.MARGIN + theme.PADDING + theme.SIDEBAR_TEXT + 28, theme.PLAIN_CARD_TOP + 34
            draw_legend(draw, beside, mode, columns=1, busy="next query")
        return canvas
    left, card_height = width - theme.MARGIN - theme.SIDEBAR, theme.BOTTOM - theme.CAMERA_TOP
    card = round_mask(theme.SIDEBAR, card_height, theme.CORNER)
    canvas.paste(theme.CARD, (left, theme.CAMERA_TOP), card)
    left, top, rule = left + theme.PADDING, theme.CAMERA_TOP + theme.PADDING, theme.MEMORY_TOP - theme.PADDING
    draw_label(draw, left, top, "policy" if policy else "mode")
    colour = theme.MODE_COLOURS.get(mode, theme.TEXT)
    canvas.paste(colour, (left, top + 27), round_mask(12, 12, 6))
    name = f"{policy} · {mode}" if policy else mode
    name, font = fit(name, width=theme.SIDEBAR_TEXT - 22, sizes_px=range(21, 13, -1))
    draw.text((left + 22, top + 32), name, colour, font, anchor="lm")
    draw.line((left, rule, left + theme.SIDEBAR_TEXT, rule), theme.LINE)
    return canvas


def _draw_plain_numbers(caption: Caption, width: int) -> Image.Image:
    """Simulated time on a line; on a clock, also what it charges for the actions of the latest query."""
    block = Image.new("RGB", (width, theme.PLAIN_NUMBERS_HEIGHT), theme.BACKGROUND)
    of = "s" if caption.limit_s is None else f"of {caption.limit_s:.3g} s"
    pieces = [("", f"{caption.time_s:.2f}", of)]
    if caption.timeline is not None and caption.latencies:
        pieces += [("latency", format_milliseconds(caption.latencies[-1].actions_ms), "ms")]
    draw, left, small, large = ImageDraw.Draw(block), 0, load_font(15), load_font(22, bold=True)
    for words in pieces:
        for text, font in zip(words, (small, large, small), strict=True):
            draw.text((left, 22), text, theme.TEXT if font is large else theme.MUTED, font, anchor="ls")
            left += round(font.getlength(text)) + 6 if text else 0
        left += 24
    draw.text((left, 22), cut(caption.clock, small, width - left), theme.DIMMED, small, anchor="ls")
    return block


def _draw_numbers(caption: Caption) -> Image.Image:
    """Simulated time and latency in two columns, and the clock."""
    block = Image.new("RGB", (theme.SIDEBAR_TEXT, theme.NUMBERS_HEIGHT), theme.CARD)
    draw = ImageDraw.Draw(block)
    latency = format_milliseconds(caption.latencies[-1].actions_ms) if caption.latencies else "—"
    of = "s" if caption.limit_s is None else f"of {caption.limit_s:.3g} s"
    columns = ((0, "time", f"{caption.time_s:.2f}", of), (176, "latency", latency, "ms"))
    font = load_font(28, bold=True)
    for x, label, value, unit in columns:
        draw_label(draw, x, 0, label)
        draw.text((x, 47), value, theme.TEXT, font, anchor="ls")
        left = x + round(font.getlength(value)) + 6
        draw.text((left, 47), unit, theme.MUTED, load_font(15), anchor="ls")
    small = load_font(14)
    clock = cut(caption.clock, small, theme.SIDEBAR_TEXT)
    left = min(176, theme.SIDEBAR_TEXT - math.ceil(small.getlength(clock)))  # a long name begins further left
    draw.text((left, 68), clock, theme.DIMMED, small, anchor="ls")
    return block


def format_milliseconds(milliseconds: float) -> str:
    """Milliseconds with one decimal below 100, none above; at most four digits, so that the unit fits."""
    if milliseconds >= 9999.5:
        return ">9999"
    return f"{milliseconds:.1f}" if milliseconds < 99.95 else f"{milliseconds:.0f}"


def draw_progress(caption: Caption, width: int) -> Image.Image:
    """A bar of simulated time as a share of the episode's limit, in the mode's colour; empty without one."""
    height = theme.PROGRESS_HEIGHT
    block = Image.new("RGB", (width, height), theme.BACKGROUND)
    block.paste(theme.LINE, (0, 0), round_mask(width, height, height // 2))
    done = 0 if caption.limit_s is None else round(width * min(1.0, caption.time_s / caption.limit_s))
    if done >= height:
        colour = theme.MODE_COLOURS.get(caption.mode, theme.TEXT)
        draw = ImageDraw.Draw(block)
        draw.rounded_rectangle((0, 0, done - 1, height - 1), height // 2, colour)
    return block


def _camera_corner(index: int) -> tuple[int, int]:
    return theme.MARGIN + index * (theme.CAMERA + theme.GAP), theme.CAMERA_TOP


def _label(camera: str) -> str:
    return theme.CAMERA_LABELS.get(camera, camera.replace("_", " "))


def _camera_mask() -> Image.Image:
    return round_mask(theme.CAMERA, theme.CAMERA, theme.CORNER)


def _camera(label: str, pixels: UInt8[np.ndarray, "_ _ 3"]) -> Image.Image:
    """A camera image scaled into its square, with a label in a corner."""
    scale = theme.CAMERA / max(pixels.shape[:2])
    # Looks like Pillow's resampling, in a fifth of the time.
    scaled = Image.fromarray(cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC))
    square = Image.new("RGB", (theme.CAMERA, theme.CAMERA), theme.CARD)
    square.paste(scaled, ((theme.CAMERA - scaled.width) // 2, (theme.CAMERA - scaled.height) // 2))
    font = load_font(14, bold=True)
    text = cut(label, font, theme.CAMERA // 2)
    width, height = round(font.getlength(text)) + 18, 24
    plate = Image.new("RGBA", (width, height), theme.BACKGROUND)  # translucent
    plate.putalpha(round_mask(width, height, 8).point(lambda level: level * 3 // 4))
    ImageDraw.Draw(plate).text((9, 12), text, theme.TEXT, font, anchor="lm")
    square.paste(plate, (12, 12), plate)
    return square


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
    shown, room = 0, height - 32  # below the line for omitted ones
    for lines, _ in reversed(items):
        room -= len(lines) * _MEMORY_LINE + _MEMORY_GAP
        if room < 0:
            break
        shown += 1
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
