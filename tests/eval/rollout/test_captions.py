"""Captions show a text from its delivery on, with its grade and the time of what it describes."""

import dataclasses

import pytest

from configs.latency import Latency
from eval.records.query_logs import QueryRecord
from eval.rollout.recorder import EpisodeCaptions
from sim_envs.fake import FakeWorld
from tests.eval.doubles import text_finished
from tests.eval.factory import key


def captions(task, text, *, step=6):
    """An episode of two queries at steps 0 and 4; the text is of the first, and delivered at a step."""
    made = EpisodeCaptions(
        key(), task="x", mode="unified", clock="fixed:50,200", limit_s=9.0, control_hz=20.0
    )
    said = text_finished(0, task=task, text=text, step=step)
    truths = {step: FakeWorld(steps=step).truth()}
    for start, delivered in ((0, []), (4, [said])):
        latency = Latency(actions_ms=50.0, busy_ms=200.0)
        query = QueryRecord(step=start, steps=4, actions_step=start + 1, free_step=start + 4, truths=truths)
        made.add(dataclasses.replace(query, latency=latency, delivered=delivered))
        if start == 0:
            assert made.at(3).narration is made.at(3).memory is None
    return made


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("Carrying the black bowl to the plate.", "right"),
        ("Carrying the black bowl.", "wrong"),
        ("Hm.", "unreadable"),
    ],
)
def test_a_narration_is_marked_when_it_is_delivered(text, mark):
    made = captions("narration", text)
    assert made.at(5).narration is None
    shown = made.at(6)
    assert shown.narration is not None
    assert (shown.narration.text, shown.narration.mark, shown.narration.seen_s) == (text, mark, 0.0)
    assert shown.time_s == 0.3
    assert [latency.busy_ms for latency in shown.latencies] == [200.0, 200.0]


@pytest.mark.parametrize(
    ("text", "mark", "parts"),
    [
        ("nothing done yet; the black bowl is in the gripper", "right", ["right", "right"]),
        ("nothing done yet; the black bowl is on the table", "wrong", ["right", "wrong"]),
        ("nothing done yet; hm", "unreadable", ["right", "unreadable"]),
    ],
)
def test_a_memory_is_marked_as_a_whole_and_part_by_part(text, mark, parts):
    shown = captions("memory", text).at(7).memory
    assert shown is not None
    assert shown.mark == mark
    assert [each for _, each in shown.parts] == parts
