"""What is executed when: timelines worked out by hand, and what holds for all of them."""

import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.latency import steps_in
from eval.rollout.rollout import Timeline
from sim_envs.fake import FakeSuite

HZ = 20.0
STEP_MS = 1e3 / HZ


def played(latencies, *, replan, horizon, limit, waiting="continue"):
    """The timeline of an episode, a word for each control step, and its queries' records.

    `|` is a query, `b3` action 3 of the second query's chunk, `-` a step in which the robot is held.
    """
    limits = {"control_hz": HZ, "replan_steps": replan, "max_steps": limit}
    timeline = Timeline(FakeSuite.published.model_copy(update=limits), waiting)
    words, queries = [], []
    for actions, busy in latencies:
        if timeline.is_over:
            break
        query = timeline.issue()
        words.append("|")
        timeline.actions_after(actions * STEP_MS, horizon=horizon)
        words += executed(timeline)
        timeline.busy_for(busy * STEP_MS)
        words += executed(timeline)
        queries.append((query.step, query.actions_step, query.free_step, query.continued, query.skipped))
    assert timeline.is_over, "the test gives too few latencies"
    return " ".join(words), queries


def executed(timeline):
    words = []
    while span := timeline.next_span():
        words += [
            "-" if span.chunk is None else f"{string.ascii_letters[span.chunk % 52]}{span.first + number}"
            for number in range(span.steps)
        ]
        timeline.advance(span, span.steps)
    return words


@pytest.mark.parametrize(
    ("latencies", "replan", "horizon", "limit", "expected"),
    [
        ([(0, 0)] * 3, 3, 5, 7, "| a0 a1 a2 | b0 b1 b2 | c0"),
        # No chunk before the first query, and a wait shorter than replan.
        ([(2, 2)] * 4, 4, 5, 14, "| - - a0 a1 | a2 a3 b2 b3 | b4 - c1 c2 | c3 c4"),
        # Held steps overtake nothing.
        ([(1, 6)] * 3, 2, 4, 13, "| - a0 a1 a2 a3 - | - b0 b1 b2 b3 - | -"),
        # A wait longer than the chunk, which overtakes the whole next one.
        ([(7, 7)] * 4, 2, 3, 24, "| - - - - - - - | a0 a1 a2 - - - - | - - - - - - - | c0 c1 c2"),
        # A k that changes.
        (
            [(0, 0), (2, 5), (0, 1), (3, 3), (1, 1)],
            *(3, 6, 15),
            "| a0 a1 a2 | a3 a4 b2 b3 b4 | c0 c1 c2 | c3 c4 c5 | d3",
        ),
        # As soon as the policy is free, and a chunk that is replaced as it comes.
        ([(1, 3)] * 3, 1, 4, 9, "| - a0 a1 | a2 b1 b2 | b3 c1 c2"),
        ([(2, 2)] * 4, 1, 6, 8, "| - - | a0 a1 | b2 b3 | c2 c3"),
        # The limit while waiting.
        ([(0, 0), (4, 9)], 2, 3, 5, "| a0 a1 | a2 - -"),
    ],
)
def test_timelines_equal_those_worked_out_by_hand(latencies, replan, horizon, limit, expected):
    assert played(latencies, replan=replan, horizon=horizon, limit=limit)[0] == expected


def test_a_robot_that_is_held_while_waiting_starts_each_chunk_at_its_first_action():
    line, _ = played([(2, 2)] * 3, replan=4, horizon=5, limit=14, waiting="hold")
    assert line == "| - - a0 a1 a2 a3 | - - b0 b1 b2 b3 | - -"
    line, _ = played([(1, 6)] * 2, replan=2, horizon=3, limit=9, waiting="hold")
    assert line == "| - a0 a1 a2 - - | - b0 b1"


@pytest.mark.parametrize(
    ("milliseconds", "steps"),
    [(0, 0), (1e-12, 0), (0.1, 1), (50, 1), (50.001, 2), (150, 3), (151, 4), (-3, 0)],
)
def test_latencies_are_rounded_up_to_whole_control_steps(milliseconds, steps):
    assert steps_in(milliseconds, HZ) == steps


LATENCIES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted).map(tuple), min_size=1, max_size=6
).map(lambda some: list(itertools.islice(itertools.cycle(some), 60)))
CASES = {
    "latencies": LATENCIES,
    "replan": st.integers(1, 8),
    "horizon": st.integers(1, 12),
    "limit": st.integers(1, 60),
    "waiting": st.sampled_from(["continue", "hold"]),
}


@given(**CASES)
def test_every_step_executes_the_next_available_action_or_holds_and_queries_are_due_in_time(**case):
    line, queries = played(**case)
    words = line.split()
    assert len(words) - words.count("|") == case["limit"]
    step = 0
    for word in words:
        if word not in "|-":
            assert step >= queries[string.ascii_letters.index(word[0])][1], "the actions have not come yet"
        step += word != "|"
    indices = {}
    for word in line.split():
        if word not in "|-":
            indices.setdefault(string.ascii_letters.index(word[0]), []).append(int(word[1:]))
    for query, executed_actions in indices.items():
        first = queries[query][4]
        assert executed_actions == list(range(first, first + len(executed_actions)))
    for *_, continued, skipped in queries:
        assert skipped in (0, min(continued, case["horizon"]))
    for (issued, actions, free, *_), (following, *_) in itertools.pairwise(queries):
        since = actions if case["waiting"] == "hold" else issued
        assert following == max(since + case["replan"], free)


@given(**CASES, more=st.tuples(st.integers(0, 5), st.integers(0, 5)).map(sorted))
def test_more_latency_never_makes_an_action_available_earlier(more, **case):
    _, queries = played(**case)
    slower = [(a + more[0], b + more[1]) for a, b in case["latencies"]]
    _, later = played(**{**case, "latencies": slower})
    for before, after in zip(queries, later, strict=False):
        assert after[0] >= before[0]
        assert after[1] >= before[1]
        assert after[2] >= before[2]
