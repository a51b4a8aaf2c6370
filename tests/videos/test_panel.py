"""A frame shows its caption and the timeline of past queries, and no model output breaks its layout."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contracts.latency import Latency
from videos import theme
from videos.panel import Caption, CaptionText, compose, draw_first_camera, draw_moment, picture_size
from videos.text import clean, load_font, wrap
from videos.timeline import (
    BAR_HEIGHT,
    BAR_TOP,
    IDLE_HEIGHT,
    IDLE_TOP,
    QuerySpan,
    QueryTimeline,
    column_at,
    draw_timeline,
)


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


NARRATION = (theme.MARGIN, theme.NARRATION_TOP, theme.sidebar_left(2) - theme.MARGIN, theme.BOTTOM)
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
        {"policy": "mine"},
        {"mode": "isolated"},
        {"time_s": 3.5},
        {"limit_s": 20.0},
        {"latencies": ()},
        {"latencies": (Latency(actions_ms=62.0, busy_ms=180.0),)},
        {"narration": said("The gripper closes.")},
        {"narration": said("The arm moves above the bowl.", seen_s=2.0)},
        {"narration": said("The arm moves above the bowl.", mark="wrong")},
        {"narration": said("The arm moves above the bowl.", mark=None)},
        {"memory": remembered("The bowl is held.")},
        {"memory": remembered("The bowl is beside the plate.", "The gripper is open.", marks=(None,))},
        {"memory": remembered(*["The bowl is beside the plate."] * 20)},
    ):
        assert changed(before, compose(cameras(), dataclasses.replace(CAPTION, **other))), other
    bottom = theme.CAMERA_TOP + theme.CAMERA
    over = (theme.MARGIN, theme.CAMERA_TOP, theme.sidebar_left(2) - theme.MARGIN, bottom)
    for outcome in ("success", "timeout", "invalid_action", "error"):
        marked = compose(cameras(), CAPTION, outcome=outcome)
        assert within(changed(before, marked), over)
        assert (marked == theme.OUTCOMES[outcome][1]).all(axis=2).sum() > 5000


@pytest.mark.parametrize("clock", [None, QueryTimeline()])
def test_a_frame_without_texts_is_the_cameras_over_a_time_line(clock):
    plain = dataclasses.replace(CAPTION, has_texts=False, policy="mine", timeline=clock)
    before, under = compose(cameras(), plain), theme.PROGRESS_TOP
    assert before.shape[1::-1] == picture_size(plain, 2) == (theme.sidebar_left(2), before.shape[0])
    assert before.shape[0] in theme.HEIGHTS
    assert all(size % 2 == 0 for size in before.shape[:2]), "as yuv420p has it"
    for said_or_kept in ("narration", "memory", "textual_memory"):
        assert changed(before, compose(cameras(), dataclasses.replace(plain, **{said_or_kept: None}))) is None
    for shown, top in (({"policy": "other"}, 0), ({"time_s": 5.0}, under), ({"limit_s": 20.0}, under)):
        box = changed(before, compose(cameras(), dataclasses.replace(plain, **shown)))
        assert box is not None
        assert box[1] >= top


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


HZ = 20
COLOUR = theme.MODE_COLOURS["isolated"]
AXIS = [column_at(-float(seconds)) for seconds in range(1, 5)]

# What the policy does in a row of control steps, and the robot: one letter per step.
POLICY = {"a": COLOUR, "l": theme.language_colour(COLOUR), ".": theme.BACKGROUND}
ROBOT = {"h": theme.IDLE, "c": theme.CONTINUED, ".": theme.BACKGROUND}


def intervals(letters, letter):
    """When a letter begins and ends to stand in a row of control steps, s."""
    inside = [False, *(each == letter for each in letters), False]
    edges = [index / HZ for index, (a, b) in enumerate(itertools.pairwise(inside)) if a != b]
    return tuple(zip(edges[::2], edges[1::2], strict=True))


# Control steps in which the policy is idle, computes actions, computes language; what the robot does in each.
spells = st.lists(st.tuples(*[st.integers(0, 30)] * 3), min_size=1, max_size=8)
robots = st.text("hc.", max_size=300)


def lane_of(queries, robot):
    """The timeline, and what the policy did in every control step as letters."""
    policy, spans = "", []
    for idle, acting, speaking in queries:
        policy += "." * idle
        ends = [(len(policy) + steps) / HZ for steps in (0, acting, acting + speaking)]
        spans.append(QuerySpan(issued_s=ends[0], actions_s=ends[1], free_s=ends[2]))
        policy += "a" * acting + "l" * speaking
    return QueryTimeline(
        queries=tuple(spans), idle=intervals(robot, "h"), continued=intervals(robot, "c")
    ), policy


def drawn(timeline, step):
    """The timeline after so many control steps, their durations added up as inexactly as floats can."""
    return np.asarray(draw_timeline(timeline, "isolated", time_s=sum([1 / HZ] * step, 0.0)))


@given(queries=spells, robot=robots, now=st.integers(0, 400))
def test_every_control_step_has_the_colours_of_its_activity(queries, robot, now):
    timeline, policy = lane_of(queries, robot)
    block = drawn(timeline, now)
    for step in range(now):
        # The last pixel of a control step: the first may be the gap before a query, or a mark of the axis.
        column = column_at((step + 1 - now) / HZ) - 1
        if column < 0 or column in AXIS:
            continue
        done, meanwhile = policy[step : step + 1] or ".", robot[step : step + 1] or "."
        assert tuple(block[BAR_TOP + BAR_HEIGHT // 2, column]) == POLICY[done]
        assert tuple(block[IDLE_TOP + IDLE_HEIGHT // 2, column]) == ROBOT[meanwhile]
        assert (tuple(block[BAR_TOP, column]) == COLOUR) == (done == "a")
        assert (tuple(block[IDLE_TOP, column]) == theme.IDLE) == (meanwhile == "h")


@given(spells, robots, st.integers(0, 300), st.integers(0, 300), st.integers(1, 3))
def test_an_updated_frame_equals_one_drawn_at_the_later_time(queries, robot, before, after, count):
    timeline, _ = lane_of(queries, robot)
    caption = dataclasses.replace(CAPTION, timeline=timeline, clock="as a test")
    earlier, later = (dataclasses.replace(caption, time_s=step / HZ) for step in (before, after))
    picture = compose(cameras(count, size=(64, 64)), earlier)
    draw_moment(picture, later)
    assert changed(picture, compose(cameras(count, size=(64, 64)), later)) is None


@pytest.mark.parametrize("has_texts", [True, False])
def test_the_name_of_a_device_is_whole(has_texts):
    caption = dataclasses.replace(CAPTION, timeline=QueryTimeline(), has_texts=has_texts)
    one, other = (
        compose(cameras(), dataclasses.replace(caption, clock=f"jetson-agx-thor-{name}"))
        for name in ("roofline", "rooflino")
    )
    assert changed(one, other) is not None
