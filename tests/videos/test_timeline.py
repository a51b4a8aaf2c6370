"""The timeline shows past queries at their times, and the current state."""

import dataclasses
import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from videos import theme
from videos.panel import Caption, CaptionText, compose, draw_moment
from videos.timeline import (
    BAR_HEIGHT,
    BAR_TOP,
    HELD_HEIGHT,
    HELD_TOP,
    QuerySpan,
    QueryTimeline,
    column_at,
    draw_timeline,
)

HZ = 20
CAPTION = Caption(
    task="pick up the bowl",
    episode="libero_object · task 0 · init 0",
    mode="isolated",
    time_s=3.25,
    memory=CaptionText(text="", seen_s=3.0, parts=(("The gripper is open.", None),)),
)
COLOUR = theme.MODE_COLOURS["isolated"]
LANGUAGE = theme.language_colour(COLOUR)
AXIS = [column_at(-float(seconds)) for seconds in range(1, 5)]
few = settings(max_examples=25)

# What the policy does in a row of control steps, and the robot: one letter per step.
POLICY = {"a": COLOUR, "l": LANGUAGE, ".": theme.BACKGROUND}
ROBOT = {"h": theme.HELD, "c": theme.CONTINUED, ".": theme.BACKGROUND}


def cameras(count=2):
    return {f"camera_{index}": np.full((64, 64, 3), 90, dtype=np.uint8) for index in range(count)}


def runs(letters, letter):
    """Where a letter stands in a row: first step, and the one behind the last."""
    inside = [False, *(each == letter for each in letters), False]
    edges = [index for index, (a, b) in enumerate(itertools.pairwise(inside)) if a != b]
    return list(zip(edges[::2], edges[1::2], strict=True))


def intervals(letters, letter):
    return tuple((a / HZ, b / HZ) for a, b in runs(letters, letter))


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
        queries=tuple(spans), held=intervals(robot, "h"), continued=intervals(robot, "c")
    ), policy


def drawn(timeline, step):
    """The timeline after so many control steps, their durations added up as inexactly as floats can."""
    return np.asarray(draw_timeline(timeline, "isolated", time_s=sum([1 / HZ] * step, 0.0)))


@few
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
        assert tuple(block[HELD_TOP + HELD_HEIGHT // 2, column]) == ROBOT[meanwhile]
        assert (tuple(block[BAR_TOP, column]) == COLOUR) == (done == "a")
        assert (tuple(block[HELD_TOP, column]) == theme.HELD) == (meanwhile == "h")


@few
@given(
    queries=spells,
    robot=robots,
    before=st.integers(0, 300),
    after=st.integers(0, 300),
    count=st.integers(1, 3),
)
def test_an_updated_frame_equals_one_drawn_at_the_later_time(queries, robot, before, after, count):
    timeline, _ = lane_of(queries, robot)
    at = [
        dataclasses.replace(CAPTION, timeline=timeline, clock="as a test", time_s=step / HZ)
        for step in (before, after)
    ]
    picture = compose(cameras(count), at[0])
    draw_moment(picture, at[1])
    assert (picture == compose(cameras(count), at[1])).all()
