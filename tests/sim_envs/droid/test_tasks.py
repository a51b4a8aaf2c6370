"""Tasks are data: what ships is sound, and what is wrong with a file of one's own is one line."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from configs.errors import UsageError
from configs.load import load
from configs.schema import SuiteConfig
from sim_envs.droid.task_file import FIRST_SAMPLED, STORED, draw, load_task, task_names
from sim_envs.suite import open_suite
from sim_envs.world import EpisodeKey

MOVING = ("take_from_conveyor", "place_on_turntable", "stop_ball")
SUITES = ("droid_tabletop", "droid_tabletop_jointpos")


BOWL = load_task("cube_in_bowl").model_dump(mode="json")["objects"]["bowl"] | {
    "x": [0.5, 0.5],
    "y": [0.1, 0.1],
}


def changed(tmp_path, path: str, value: Any, name: str = "cube_in_bowl") -> str:
    """A task file with something put at a path."""
    task = load_task(name).model_dump(mode="json")
    *parents, last = path.split(".")
    place: Any = task
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[int(last) if isinstance(place, list) else last] = value
    file = tmp_path / "task.yaml"
    file.write_text(yaml.safe_dump(task))
    return str(file)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("objects.ball.carrier", "line", "'ball' is on 'line', a line: only a conveyor, turntable or ramp"),
        ("objects.ball.shape", {"kind": "box", "size": [0.05] * 3}, "only a sphere rolls, not a box"),
        ("objects.line.shape", {"kind": "mark", "radius": 0.1}, "'line' is a mark: only a line can be"),
        ("rubric.0.object", "cub", "object in criterion `reach`: 'cub'; did you mean 'cube'"),
        ("rubric.2.target", "cube", "nothing can be inside 'cube', a box: take a bowl, mug or bin"),
        ("rubric.0", {"kind": "opened", "object": "cube", "by": 0.1}, "only a drawer is opened"),
        ("objects.cube.x", [0.9, 1.0], "an unreachable pose.*keep within 0.28 to 0.72 m"),
        ("objects.cube.y", [0.2, 0.1], r"`y` is \[0.2, 0.1\]: give a finite minimum"),
        ("objects", {"cube": BOWL, "bowl": BOWL}, "in one place: 'bowl' and 'cube' of task cube_in_bowl"),
    ],
)
def test_what_is_wrong_with_a_task_file_is_one_line(tmp_path, path, value, complaint):
    name = "stop_ball" if path.startswith(("objects.ball", "objects.line")) else "cube_in_bowl"
    with pytest.raises(UsageError, match=complaint) as caught:
        draw(load_task(changed(tmp_path, path, value, name)), init_id=0, seed=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("beside", [True, False])
def test_a_task_of_ones_own_needs_no_code(tmp_path, beside):
    file = changed(tmp_path, "name", "mine")
    file = Path(file).name if beside else file
    protocol = load(SuiteConfig, "droid_tabletop").model_dump()
    protocol |= {"name": "mine", "environment": {"control": "joint_velocity", "tasks": [file]}}
    suite_file = tmp_path / "suite.yaml"
    suite_file.write_text(yaml.safe_dump(protocol))
    (task,) = open_suite(str(suite_file)).tasks()
    assert (task.suite, task.name, task.language) == ("mine", "mine", "put the cube in the bowl")
    (tmp_path / "task.yaml").unlink()
    with pytest.raises(UsageError, match=r"no task file .*; give its path from the suite's file"):
        open_suite(str(suite_file))


@pytest.mark.parametrize("suite", SUITES)
def test_every_task_that_ships_is_in_the_suites(suite):
    assert sorted(task.name for task in open_suite(suite).tasks()) == list(task_names())
    assert [task.task_id for task in open_suite(suite).tasks() if task.name in MOVING] == [13, 14, 15]


@pytest.mark.parametrize("name", task_names())
def test_stored_states_are_the_same_for_every_seed_and_sampled_ones_are_not(name):
    task = load_task(name)
    states = [draw(task, init_id=number, seed=0) for number in range(STORED)]
    assert states == [draw(task, init_id=number, seed=1) for number in range(STORED)]
    states += [draw(task, init_id=FIRST_SAMPLED + number, seed=seed) for number in (0, 1) for seed in (0, 1)]
    assert all(one != other for one, other in itertools.combinations(states, 2))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "cube_in_bowl")) for name in task_names()]
)
def test_stored_states_are_settled_collision_free_and_reachable(begin_droid, name):
    for init_id in range(0, STORED, 1 if name != "cube_in_bowl" else 5):
        sim = begin_droid(name, init_id=init_id, settle_steps=0)
        assert sim.station.data.contact.dist.min(initial=0) > -0.001
        placed = {each: sim.station.pose(each).middle for each in sim.task.objects}
        assert all(0.28 <= np.linalg.norm(middle[:2]) <= 0.75 for middle in placed.values())
        begin_droid(name, init_id=init_id, settle_steps=8)  # what moves by itself only does so after it
        for each, middle in placed.items():
            np.testing.assert_allclose(sim.station.pose(each).middle, middle, atol=0.002)
        assert sim.progress() == 0


def test_wordings_take_turns_and_training_never_shows_those_held_out():
    suite = open_suite("droid_tabletop")
    for task in suite.tasks():
        said = {}
        for wordings in ("training", "held_out"):
            keys = [EpisodeKey(suite=task.suite, task_id=task.task_id, init_id=n, seed=7) for n in range(6)]
            said[wordings] = {suite.instruction(key, wordings) for key in keys}
            assert len(said[wordings]) > 1
        assert not said["training"] & said["held_out"]
        assert task.language in suite.training_wordings()[task.language]
