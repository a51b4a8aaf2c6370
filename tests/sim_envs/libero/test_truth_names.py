"""Nouns: those of LIBERO's instructions, for every task, and no two things of one name."""

import pytest

from sim_envs.libero.tasks import get_task
from sim_envs.truth.nouns import MOVABLE, PARTS, PLACES
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
        ("libero_goal", 1, [("on", "black bowl", "stove")]),
        ("libero_goal", 2, [("on", "wine bottle", "top of the cabinet")]),
        ("libero_goal", 5, [("on", "plate", "front of the stove")]),
        ("libero_goal", 7, [("turnon", "stove")]),
        ("libero_10", 4, [("on", "white mug", "left plate"), ("on", "yellow and white mug", "right plate")]),
        ("libero_10", 5, [("in", "book", "back compartment of the caddy")]),
        ("libero_10", 9, [("in", "yellow and white mug", "microwave"), ("close", "microwave")]),
        (
            "libero_90",
            3,
            [("in", "back butter", "top drawer of the cabinet"), ("close", "top drawer of the cabinet")],
        ),
        ("libero_90", 16, [("on", "front black bowl", "middle black bowl")]),
        ("libero_90", 34, [("on", "yellow and white mug", "front of the white mug")]),
        ("libero_90", 38, [("on", "right moka pot", "stove"), ("turnon", "stove")]),
        ("libero_90", 42, [("in", "frying pan", "space under the shelf")]),
        ("libero_90", 84, [("on", "red mug", "right of the caddy")]),
        ("libero_90", 87, [("on", "left book", "top of the shelf")]),
    ],
)
def test_goals_read_as_the_instruction_does(suite, task_id, expected):
    assert goals(get_task(suite, task_id)) == expected


def test_words_of_position_agree_with_every_instruction_that_uses_them():
    for task in ALL_TASKS:
        words = {
            word
            for word in ("left", "right", "front", "back", "middle")
            if f" {word} " in f" {task.language} "
        }
        named = " ".join(noun for goal in goals(task) for noun in goal[1:]).split()
        assert words <= set(named), task.language


def test_of_alike_things_the_one_that_is_meant_has_the_plain_name():
    nouns = names(get_task("libero_spatial", 0)).things
    assert (nouns["akita_black_bowl_1"], nouns["akita_black_bowl_2"]) == ("black bowl", "other black bowl")
