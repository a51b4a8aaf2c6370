"""Nouns and goals are those of LIBERO's instructions, and textual memory follows OxyGen's label rules."""

import json

import pytest

from sim_envs.libero.experts.scene import Goal
from sim_envs.libero.tasks import get_task
from sim_envs.libero.truth import goal_sentences
from sim_envs.truth.nouns import MOVABLE, PARTS, PLACES
from sim_envs.truth.textual_memory import GoalTracker, parse_textual_memory, write_textual_memory
from tests.sim_envs.vocabulary import ALL_TASKS, goals, names


@pytest.mark.parametrize("task", ALL_TASKS, ids=lambda task: f"{task.suite}-{task.task_id}")
def test_every_task_has_its_nouns_in_the_vocabulary(task):
    things = names(task).things
    assert set(things.values()) <= MOVABLE
    assert len(set(things.values())) == len(things)
    for _, subject, *place in goals(task):
        assert subject in (MOVABLE if place else PARTS)
        assert set(place) <= PLACES


@pytest.mark.parametrize(
    ("suite", "task_id", "expected"),
    [
        ("libero_object", 3, [("in", "bbq sauce", "basket")]),
        ("libero_spatial", 5, [("on", "black bowl", "plate")]),
        ("libero_goal", 0, [("open", "middle drawer of the cabinet")]),
        ("libero_goal", 5, [("on", "plate", "front of the stove")]),
        ("libero_10", 4, [("on", "white mug", "left plate"), ("on", "yellow and white mug", "right plate")]),
        ("libero_10", 9, [("in", "yellow and white mug", "microwave"), ("close", "microwave")]),
        (
            "libero_90",
            3,
            [("in", "back butter", "top drawer of the cabinet"), ("close", "top drawer of the cabinet")],
        ),
        ("libero_90", 16, [("on", "front black bowl", "middle black bowl")]),
        ("libero_90", 38, [("on", "right moka pot", "stove"), ("turnon", "stove")]),
        ("libero_90", 42, [("in", "frying pan", "space under the shelf")]),
    ],
)
def test_goals_read_as_the_instruction_does(suite, task_id, expected):
    assert goals(get_task(suite, task_id)) == expected


def load_golden(golden):
    return json.loads((golden / "oxygen_textual_memory.json").read_text())


def sentences_of(record):
    goals = [Goal(predicate=goal["name"], arguments=tuple(goal["args"])) for goal in record["goals"]]
    return goal_sentences(goals, record["instruction"])


@pytest.mark.golden
def test_every_subset_of_goals_of_all_tasks_reads_as_in_oxygens_labels_and_is_read_back(golden):
    tasks = load_golden(golden)["tasks"]
    assert len(tasks) == 40
    for task in tasks:
        sentences = sentences_of(task)
        for case in task["sentences"]:
            facts, text = sentences.facts(case["satisfied"], case["lifted"]), case["textual_memory"]
            assert write_textual_memory(facts) == text, task["name"]
            assert parse_textual_memory(text) == facts
            assert parse_textual_memory(text.upper().removesuffix(".")) == facts


def values_of(record):
    return [value == "1" for value in record["values"]]


@pytest.mark.golden
def test_time_series_read_as_in_oxygens_labels_except_for_lifts_that_are_still_to_come(golden):
    """OxyGen's labels name objects by the lifts of the whole trajectory; an episode knows the past alone."""
    differing = {}
    for series in load_golden(golden)["series"]:
        sentences, expected = sentences_of(series), series["textual_memory"]
        tracker = GoalTracker(sentences, stable_steps=series["stability_window"])
        goals = [values_of(goal) for goal in series["goals"]]
        lifts = {
            each["args"][0]: values_of(each) for each in series["auxiliary"] if each["name"] == "picked_up"
        }
        texts = []
        for frame in range(len(expected)):
            lifted = [name for name, values in lifts.items() if values[frame]]
            tracker.step([values[frame] for values in goals], lifted)
            texts.append(write_textual_memory(tracker.facts()))
        offline = [write_textual_memory(sentences.facts(each, tracker.lifted)) for each in series["reported"]]
        assert offline == expected, series["name"]
        frames = {frame for frame, text in enumerate(texts) if text != expected[frame]}
        differing |= {series["name"]: frames} if frames else {}
    assert differing == {"two pots, ordinal from a later lift": {12, 13, 14, 15}}
