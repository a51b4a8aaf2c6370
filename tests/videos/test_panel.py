"""A frame shows its caption, and no model output breaks its layout."""

import dataclasses
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from configs.latency import Latency
from configs.schema import Mode
from videos import theme
from videos.caption import Caption, CaptionText
from videos.panel import compose, draw_first_camera, draw_moment
from videos.text import clean, load_font, wrap
from videos.timeline import draw_latencies, scale_ms


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
NUMBERS = (_LEFT, theme.NUMBERS_TOP, _LEFT + theme.SIDEBAR_TEXT, theme.MEMORY_TOP - theme.PADDING)


def luminance(colour):
    """Relative luminance, as WCAG has it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(colour) / 255]
    return np.dot([0.2126, 0.7152, 0.0722], linear)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_every_mode_has_a_colour_that_can_be_read_on_the_card_and_in_a_figure(mode):
    colour = luminance(theme.MODE_COLOURS[mode])
    assert (colour + 0.05) / (luminance(theme.CARD) + 0.05) > 3.8
    assert 1.05 / (colour + 0.05) > 3.8
    assert len(set(theme.MODE_COLOURS.values())) == len(get_args(Mode))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_frame_size_is_even(count):
    height, width, channels = compose(cameras(count), CAPTION).shape
    assert (width, height) == theme.picture_size(count)
    assert channels == 3
    assert width % 2 == height % 2 == 0


@few
@given(text=anything)
def test_any_narration_stays_in_its_block(text):
    blank = compose(cameras(), dataclasses.replace(CAPTION, narration=None))
    drawn = compose(cameras(), dataclasses.replace(CAPTION, narration=said(text)))
    assert within(changed(blank, drawn), NARRATION)


@few
@given(texts=st.lists(anything, max_size=20))
def test_any_memory_stays_in_its_block(texts):
    blank = compose(cameras(), dataclasses.replace(CAPTION, memory=None))
    drawn = compose(cameras(), dataclasses.replace(CAPTION, memory=remembered(*texts)))
    assert within(changed(blank, drawn), MEMORY)


def test_memory_and_textual_memory_share_the_sidebar():
    both = dataclasses.replace(CAPTION, textual_memory=CAPTION.memory)
    alone = dataclasses.replace(CAPTION, memory=None, textual_memory=CAPTION.memory)
    blank = compose(cameras(), dataclasses.replace(CAPTION, memory=None))
    assert within(changed(blank, compose(cameras(), both)), MEMORY)
    assert within(changed(blank, compose(cameras(), alone)), MEMORY)
    assert compose(cameras(), both).tobytes() != compose(cameras(), alone).tobytes()


@few
@given(task=anything, episode=anything)
def test_any_title_stays_in_its_block(task, episode):
    blank = compose(cameras(), dataclasses.replace(CAPTION, task="", episode=""))
    drawn = compose(cameras(), dataclasses.replace(CAPTION, task=task, episode=episode))
    assert within(changed(blank, drawn), HEADER)


@few
@given(latencies=st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), max_size=theme.LATENCIES))
def test_any_latency_stays_in_its_block(latencies):
    queries = tuple(Latency(actions_ms=min(pair), busy_ms=max(pair)) for pair in latencies)
    drawn = compose(cameras(), dataclasses.replace(CAPTION, latencies=queries))
    assert within(changed(compose(cameras(), CAPTION), drawn), NUMBERS)


@few
@given(time_s=st.floats(0, 999), limit_s=st.floats(0.05, 999))
def test_any_time_changes_numbers_progress_and_ages_only(time_s, limit_s):
    before = compose(cameras(), dataclasses.replace(CAPTION, limit_s=limit_s))
    picture = before.copy()
    draw_moment(picture, dataclasses.replace(CAPTION, limit_s=limit_s, time_s=time_s))
    width, heading = theme.cameras_width(2), theme.HEADING_HEIGHT
    for left, top, right, bottom in (
        NUMBERS,
        (theme.MARGIN, theme.PROGRESS_TOP, theme.MARGIN + width, theme.PROGRESS_TOP + theme.PROGRESS_HEIGHT),
        (theme.MARGIN, theme.NARRATION_TOP, theme.MARGIN + width, theme.NARRATION_TOP + heading),
        (_LEFT, theme.MEMORY_TOP, _LEFT + theme.SIDEBAR_TEXT, theme.MEMORY_TOP + heading),
    ):
        picture[top:bottom, left:right] = before[top:bottom, left:right]
    assert changed(before, picture) is None


def test_replacing_the_first_image_equals_drawing_all_anew():
    before, after = cameras(), {**cameras(), "camera_0": cameras(level=200)["camera_0"]}
    picture = compose(before, CAPTION)
    draw_first_camera(picture, "camera_0", after["camera_0"])
    assert changed(picture, compose(after, CAPTION)) is None
    assert changed(picture, compose(before, CAPTION)) is not None


def test_the_progress_bar_shows_the_share_of_the_limit():
    filled = []
    for time_s in (0.0, 3.5, 7.0, 14.0, 20.0):
        picture = compose(cameras(), dataclasses.replace(CAPTION, time_s=time_s))
        row = picture[theme.PROGRESS_TOP + theme.PROGRESS_HEIGHT // 2, theme.MARGIN :]
        filled.append((row[: theme.cameras_width(2)] == theme.MODE_COLOURS["unified"]).all(axis=1).mean())
    assert filled == pytest.approx([0, 0.25, 0.5, 1, 1], abs=0.01)


@pytest.mark.parametrize("mark", theme.MARKS)
def test_every_mark_has_its_sign_and_its_colour(mark):
    place = (slice(theme.NARRATION_TOP, theme.NARRATION_TOP + theme.HEADING_HEIGHT), slice(None, 600))
    drawn = compose(cameras(), dataclasses.replace(CAPTION, narration=said("Done.", mark=mark)))[place]
    sign, colour = theme.MARKS[mark]
    assert (drawn == colour).all(axis=2).sum() > 20
    assert [other for other, _ in theme.MARKS.values()].count(sign) == 1
    assert (luminance(colour) + 0.05) / (luminance(theme.CARD) + 0.05) > 4.5


def test_a_part_of_a_memory_is_marked_by_itself():
    right, wrong = (
        compose(cameras(), dataclasses.replace(CAPTION, memory=remembered("a", "b", marks=("right", mark))))
        for mark in ("right", "wrong")
    )
    left, top, right_edge, _ = changed(right, wrong)
    assert left >= _LEFT
    assert right_edge < _LEFT + 26
    assert top > theme.MEMORY_TOP + theme.HEADING_HEIGHT + 24


@pytest.mark.parametrize(("longest_ms", "scale"), [(52.1, 100), (200, 200), (201, 500), (1e12, 50_000_000)])
def test_the_strip_of_latencies_has_a_round_scale(longest_ms, scale):
    latencies = [Latency(actions_ms=40.0, busy_ms=each) for each in (float(longest_ms), 50.0)]
    assert scale_ms(latencies) == scale


def test_bars_of_latencies_are_as_high_as_the_latencies_to_scale():
    queries = tuple(Latency(actions_ms=each / 2, busy_ms=each) for each in (200.0, 100.0, 50.0))
    strip = np.asarray(draw_latencies(queries, "unified"))
    bars = strip.shape[0] - 18
    colour, language = theme.MODE_COLOURS["unified"], theme.language_colour(theme.MODE_COLOURS["unified"])
    pitch = theme.SIDEBAR_TEXT // theme.LATENCIES
    for age, share in enumerate((0.25, 0.5, 1.0)):
        column = strip[:, theme.SIDEBAR_TEXT - age * pitch - pitch // 2]
        assert (column == colour).all(axis=1).sum() == pytest.approx(share / 2 * bars, abs=1)
        assert (column == language).all(axis=1).sum() == pytest.approx(share / 2 * bars, abs=1)


@pytest.mark.parametrize(
    "other",
    [
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
    ],
)
def test_every_field_of_the_caption_is_visible(other):
    assert changed(compose(cameras(), CAPTION), compose(cameras(), dataclasses.replace(CAPTION, **other)))


def test_the_newest_memories_are_shown_when_there_are_too_many():
    many = tuple(f"memory number {n} of a long list that goes on and on" for n in range(40))
    newest = dataclasses.replace(CAPTION, memory=remembered(*many))
    oldest_differs = dataclasses.replace(CAPTION, memory=remembered("something else", *many[1:]))
    newest_differs = dataclasses.replace(CAPTION, memory=remembered(*many[:-1], "something else"))
    assert changed(compose(cameras(), newest), compose(cameras(), oldest_differs)) is None
    assert changed(compose(cameras(), newest), compose(cameras(), newest_differs)) is not None


@pytest.mark.parametrize("outcome", ["success", "timeout", "invalid_action", "error"])
def test_the_outcome_is_drawn_in_its_colour_over_the_cameras_only(outcome):
    marked = compose(cameras(), CAPTION, outcome=outcome)
    box = changed(compose(cameras(), CAPTION), marked)
    top, bottom = theme.CAMERA_TOP, theme.CAMERA_TOP + theme.CAMERA
    assert within(box, (theme.MARGIN, top, theme.MARGIN + theme.cameras_width(2), bottom))
    assert (marked == theme.OUTCOME_COLOURS[outcome]).all(axis=2).sum() > 5000


def test_camera_pixels_are_doubled_where_they_are():
    image = np.zeros((256, 256, 3), dtype=np.uint8)
    image[100:140, 60:90] = 255
    picture = compose({"agent": image}, CAPTION)
    camera = picture[theme.CAMERA_TOP :, theme.MARGIN :][: theme.CAMERA, : theme.CAMERA]
    assert camera[204:276, 124:176].min() > 250
    assert camera[300:500, 200:].max() < 5


def test_a_camera_that_is_not_square_keeps_its_proportions():
    picture = compose(cameras(1, size=(90, 160), level=255), CAPTION)
    camera = picture[theme.CAMERA_TOP :, theme.MARGIN :][: theme.CAMERA, : theme.CAMERA]
    bright = (camera == 255).all(axis=2)[:, theme.CAMERA // 2].sum()
    assert bright == theme.CAMERA * 90 // 160


@example(text="00m00", width=30, max_lines=2)
@given(text=anything, width=st.integers(30, 900), max_lines=st.integers(1, 4))
@few
def test_wrapped_lines_are_narrow_enough_and_few_enough(text, width, max_lines):
    font = load_font(16)
    lines = wrap(text, font, width=width, max_lines=max_lines)
    assert len(lines) <= max_lines
    assert all(font.getlength(line) <= width for line in lines)


@given(text=anything, width=st.integers(30, 900))
@few
def test_wrapping_loses_no_word_without_an_ellipsis(text, width):
    lines = wrap(text, load_font(16), width=width, max_lines=1000)
    assert "".join(lines).replace(" ", "") == clean(text).replace(" ", "")


def test_what_does_not_fit_ends_in_an_ellipsis():
    assert wrap("word " * 100, load_font(16), width=200, max_lines=2)[-1].endswith("…")


def test_lines_break_between_words():
    assert wrap("one two three", load_font(16), width=70, max_lines=9) == ["one two", "three"]


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        ("a\tb\nc", "a b c"),
        ("\x1b[31mred\x00", "[31mred"),
        ("\ud800half", "half"),
        ("left\u202eright\u200b", "leftright"),
        ("Schüssel, чашка, κόσμε", "Schüssel, чашка, κόσμε"),
        ("\n \x07 ", ""),
    ],
)
def test_control_characters_are_left_out_and_letters_kept(given_text, kept):
    assert clean(given_text) == kept
