"""The options of LIBERO-plus and LIBERO-PRO, and which of their tasks are played."""

import json
import os

import pytest

from configs.schema import ExecutionConfig, RunConfig
from contracts.errors import UsageError
from eval import libero
from eval.rollout.plan import make_plan
from eval.rollout.prepare import prepare_options
from sim_envs.libero.plus.suite import LIBERO_PLUS, PlusEnvironment
from tests.sim_envs.libero.small_copy import BASE, write, write_small_copy

SUITE = "libero_plus_spatial"


@pytest.fixture(autouse=True)
def small_copy(tmp_path, monkeypatch):
    monkeypatch.setenv(LIBERO_PLUS.variable, str(tmp_path))
    return write_small_copy(tmp_path)


def _played(**options):
    plan = make_plan(RunConfig(suites=(SUITE,), assets="standins", **options))
    return [each.task.name.removeprefix(f"{BASE}_") for each in plan.tasks]


def test_only_available_leaves_out_what_the_assets_lack_and_a_task_is_played_once():
    assert len(_played()) == 8
    left = _played(only_available=True)
    assert len(left) == 5
    assert not any(name.startswith(("light", "table", "add")) for name in left)
    with pytest.raises(
        UsageError, match=r"--only-available: libero_plus_spatial needs scenes/lights/dim.xml"
    ):
        _played(only_available=True, task_ids=(3, 4))


@pytest.mark.parametrize(("task_ids", "count"), [((), "3 of 8"), ((0, 3), "1 of 2")])
def test_a_run_says_which_of_the_asked_tasks_only_available_leaves_out(task_ids, count, tmp_path):
    asked = {"policy": "noop", "suites": (SUITE,), "assets": "standins", "only_available": True}
    asked |= {"task_ids": task_ids}
    how = {"given": asked, "execution": ExecutionConfig(), "output_dir": tmp_path}
    (remark,) = prepare_options(asked, **how).remarks
    assert remark.startswith(f"{SUITE}: {count} tasks lack assets and are left out, all of Light Conditions")


def test_per_category_draws_the_same_tasks_of_each_whatever_else_is_played():
    """Of this copy, two tasks are of one category: the layouts."""
    assert len(_played(per_category=1)) == 7
    assert len(_played(per_category=2)) == 8
    layouts = [name for name in _played(per_category=1) if name.startswith(("add", "level"))]
    assert layouts == ["add_4"], "which one it is may not change: others compare with it"
    assert _played(per_category=1, task_ids=(7, 6)) == layouts
    assert _played(per_category=1, only_available=True) == _played(only_available=True)
    with pytest.raises(UsageError, match="--per-category 3: tasks of libero_goal have no categories"):
        make_plan(RunConfig(suites=("libero_goal",), assets="standins", per_category=3))


def test_another_copy_is_another_world(tmp_path, monkeypatch):
    def worlds():
        return [each.world for each in make_plan(RunConfig(suites=(SUITE,), assets="standins")).tasks]

    before = worlds()
    assert before == worlds()
    write_small_copy(tmp_path / "other")
    monkeypatch.setenv(LIBERO_PLUS.variable, str(tmp_path / "other"))
    assert not {*before} & {*worlds()}


def test_the_choices_of_the_command_are_those_of_the_suite(tmp_path, monkeypatch):
    for name in ("plus_instruction", "plus_noise"):
        offered, taken = (
            kind.model_fields[name].annotation for kind in (libero.LiberoOptions, PlusEnvironment)
        )
        assert offered == taken | None
    options = libero.LiberoOptions(plus_instruction="bddl", libero_plus=tmp_path / "mine")
    assert options.as_flags([SUITE]) == {"environment": {"plus_instruction": "bddl"}}
    assert os.environ[LIBERO_PLUS.variable] == str(tmp_path / "mine")


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (
            ["libero_pro_goal_env"],
            "libero_pro_goal_env: LIBERO-PRO's perturbed environments were never released",
        ),
        (
            ["libero_goal", "--plus-instruction", "bddl", "--assets", "standins"],
            "--plus-instruction bddl: libero_goal has no such choice; leave it out",
        ),
        ([SUITE, "--plus-noise", "loud"], "unknown plus_noise 'loud'; did you mean 'episode'?"),
        ([SUITE, "--assets", "standins"], "--only-available plays the 5 of 8 tasks"),
    ],
)
def test_what_cannot_be_played_is_one_line(asked, complaint, refused, tmp_path):
    place = ["--output-dir", str(tmp_path / "runs")]
    assert complaint in refused(libero.app, "--suite", *asked, "--policy", "noop", *place)


_SPY = """
import pathlib
import numpy as np

class Spy:
    def infer(self, observation):
        with pathlib.Path("told.txt").open("a") as file:
            file.write(observation["prompt"] + "\\n")
        return {"actions": np.zeros((5, 7))}

    def reset(self):
        pass
"""


@pytest.mark.parametrize(
    ("choice", "suffix"), [("published", " view 71 15 100 0 0 initstate 0"), ("vanilla", "")]
)
def test_the_policy_is_told_the_chosen_instruction_and_any_paraphrase(
    choice, suffix, command, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spy.py").write_text(_SPY)
    asked = ["--policy", "spy.py:Spy", "--task-ids", "0", "2", "--plus-instruction", choice]
    how = ["--assets", "standins", "--max-steps", "5", "--video", "none", "--no-report"]
    code, _, _ = command(libero.app, "--suite", SUITE, *asked, *how)
    assert code == 0
    told = (tmp_path / "told.txt").read_text().splitlines()
    assert list(dict.fromkeys(told)) == [BASE.replace("_", " ") + suffix, "lift the dark bowl"]


def test_per_category_takes_of_each_difficulty_in_turn(small_copy):
    names = [f"{BASE}_view_{view}_0_100_0_0_initstate_0" for view in range(1, 21)]
    write(
        small_copy / "benchmark/libero_suite_task_map.py", f"libero_task_map = {{'libero_spatial': {names}}}"
    )
    levels = [
        {"name": name, "difficulty_level": 1 if number < 16 else 5 if number < 18 else None}
        for number, name in enumerate(names)
    ]
    write(small_copy / "benchmark/task_classification.json", json.dumps({"libero_spatial": levels}))

    def drawn(number):
        plan = make_plan(RunConfig(suites=(SUITE,), assets="standins", per_category=number))
        return sorted(each.task.difficulty or 0 for each in plan.tasks)

    assert drawn(3) == [0, 1, 5]
    assert drawn(6) == [0, 0, 1, 1, 5, 5]
    assert drawn(8) == [0, 0, 1, 1, 1, 1, 5, 5]
