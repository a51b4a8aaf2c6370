"""A frame shows its caption, and no model output breaks its layout."""

import dataclasses

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from configs.latency import Latency
from videos import theme
from videos.panel import Caption, CaptionText, compose, draw_first_camera
from videos.text import clean, load_font, wrap


def said(text, seen_s=2.5, mark="right"):
    return CaptionText(text=text, seen_s=seen_s, mark=mark)


def remembered(*parts, seen_s=2.0, mark="partly right", marks=()):
    marks = (*marks, *["right"] * (len(parts) - len(marks)))
    return CaptionText(text="", seen_s=seen_s, mark=mark, parts=tuple(zip(parts, marks, strict=True)))


CAPTION = Caption(
    task="pick up the black bowl and place it on the plate",
    episode="libero_spatial · task 0 · init 0",
    mode="unified",
    time_s=3.25,
    limit_s=14.0,
    latencies=(Latency(actions_ms=61.3, busy_ms=180.0),),
    narration=said("The arm moves above the bowl."),
    memory=remembered("The bowl is beside the plate.", "The gripper is open."),
)
anything = st.text(st.characters(), max_size=400) | st.just("a" + "\u0301" * 300)  # a tower of accents
few = settings(max_examples=15)


def cameras(count=2, size=(256, 256), level=90):
    return {f"camera_{index}": np.full((*size, 3), level, dtype=np.uint8) for index in range(count)}


def changed(before, after):
    """Bounding box (left, top, right, bottom) of what differs between two pictures; None if nothing does."""
    rows, columns = np.nonzero((before != after).any(axis=2))
    return None if len(rows) == 0 else (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)


def within(box, outer):
    return box is None or (
        box[0] >= outer[0] and box[1] >= outer[1] and box[2] <= outer[2] and box[3] <= outer[3]
    )


NARRATION = (theme.MARGIN, theme.NARRATION_TOP, theme.MARGIN + theme.cameras_width(2), theme.BOTTOM)
_LEFT = theme.sidebar_left(2) + theme.PADDING
MEMORY = (_LEFT, theme.MEMORY_TOP, _LEFT + theme.SIDEBAR_TEXT, theme.MEMORY_TOP + theme.MEMORY_HEIGHT)
HEADER = (theme.MARGIN, 0, theme.picture_size(2)[0] - theme.MARGIN, theme.CAMERA_TOP)


@few
@given(text=anything, parts=st.lists(anything, max_size=20), task=anything, episode=anything)
def test_any_text_stays_in_its_block(text, parts, task, episode):
    for blank, drawn, block in (
        ({"narration": None}, {"narration": said(text)}, NARRATION),
        ({"memory": None}, {"memory": remembered(*parts)}, MEMORY),
        ({"task": "", "episode": ""}, {"task": task, "episode": episode}, HEADER),
    ):
        before, after = (compose(cameras(), dataclasses.replace(CAPTION, **each)) for each in (blank, drawn))
        assert within(changed(before, after), block)


def test_replacing_the_first_image_equals_drawing_all_anew():
    assert all(compose(cameras(count), CAPTION).shape[1] % 2 == 0 for count in (1, 2, 3)), "as yuv420p has it"
    before, after = cameras(), {**cameras(), "camera_0": cameras(level=200)["camera_0"]}
    picture = compose(before, CAPTION)
    draw_first_camera(picture, "camera_0", after["camera_0"])
    assert changed(picture, compose(after, CAPTION)) is None
    assert changed(picture, compose(before, CAPTION)) is not None


def test_every_field_of_the_caption_is_visible_and_the_outcome_in_its_colour_over_the_cameras():
    before = compose(cameras(), CAPTION)
    for other in (
        {"task": "open the drawer"},
        {"episode": "libero_goal · task 1 · init 2"},
        {"mode": "isolated"},
        {"time_s": 3.5},
        {"limit_s": 20.0},
        {"latencies": ()},
        {"latencies": (Latency(actions_ms=62.0, busy_ms=180.0),)},
        {"narration": said("The gripper closes.")},
        {"narration": said("The arm moves above the bowl.", seen_s=2.0)},
        {"narration": said("The arm moves above the bowl.", mark="wrong")},
        {"memory": remembered("The bowl is held.")},
    ):
        assert changed(before, compose(cameras(), dataclasses.replace(CAPTION, **other))), other
    bottom = theme.CAMERA_TOP + theme.CAMERA
    over = (theme.MARGIN, theme.CAMERA_TOP, theme.MARGIN + theme.cameras_width(2), bottom)
    for outcome in ("success", "timeout", "invalid_action", "error"):
        marked = compose(cameras(), CAPTION, outcome=outcome)
        assert within(changed(before, marked), over)
        assert (marked == theme.OUTCOME_COLOURS[outcome]).all(axis=2).sum() > 5000


@example(text="00m00", width=30, max_lines=2)
@given(text=anything, width=st.integers(30, 900), max_lines=st.integers(1, 4))
@few
def test_wrapped_lines_are_narrow_enough_and_few_enough(text, width, max_lines):
    font = load_font(16)
    lines = wrap(text, font, width=width, max_lines=max_lines)
    assert len(lines) <= max_lines
    assert all(font.getlength(line) <= width for line in lines)


def test_control_characters_are_left_out_and_letters_kept():
    hostile = "a\tb\nc \x1b[31mred\x00 \ud800half left\u202eright\u200b \n \x07 чашка, κόσμε"
    assert clean(hostile) == "a b c [31mred half leftright чашка, κόσμε"
