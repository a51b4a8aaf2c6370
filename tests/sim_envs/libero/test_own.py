"""Suites of one's own tasks: what their files may say, what their worlds are, and what is refused."""

import contextlib
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from sim_envs.libero.assets import package_root
from sim_envs.libero.bddl import check_problem
from sim_envs.libero.definitions import WORKSPACE_OF, add_models, known_categories
from sim_envs.libero.tasks import get_task, init_states
from sim_envs.suite import open_suite
from sim_envs.task_check import check_task
from sim_envs.testing import check_suite
from sim_envs.world import TaskError
from tests.sim_envs.libero.conftest import SODA
from tests.sim_envs.libero.small_copy import write

VANILLA = get_task("libero_goal", 8)  # put the bowl on the plate
BOTTLE = "(On wine_bottle_1 flat_stove_1_cook_region)"


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with a suite of one task: the wine bottle onto the stove."""
    write(tmp_path / "tasks/bottle_on_stove.bddl", problem())
    suite = {"name": "mine", "world": "sim_envs.libero.own:OwnSuite", "max_steps": 300, "settle_steps": 2}
    suite |= {"trials_per_task": 2, "control_hz": 20, "camera_size": 64, "replan_steps": 5}
    write(tmp_path / "mine.yaml", yaml.safe_dump(suite | {"environment": {"bddl": "tasks"}}))
    return tmp_path


def problem(**changes: str) -> str:
    """The problem of the bottle, with texts replaced."""
    text = VANILLA.bddl_file.read_text()
    texts = {"Put the bowl on the plate": "put the wine bottle on the stove"}
    texts |= {"(On akita_black_bowl_1 plate_1)": BOTTLE, **changes}
    for old, new in texts.items():
        assert old in text
        text = text.replace(old, new)
    return text


def mine(folder, standins, *, settle_steps=2, **environment):
    how = {"assets": str(standins.path), "settle_steps": settle_steps, "environment": environment}
    return open_suite(str(folder / "mine.yaml"), **how)


@contextlib.contextmanager
def opened(suite, task_id=0):
    with contextlib.closing(suite.open(suite.tasks()[task_id])) as world:
        yield world


def begin(world, *, init_id: int, seed: int) -> np.ndarray:
    world.reset(init_id=init_id, seed=seed, settle_steps=0)
    return world.flat_state()


def test_a_folder_of_bddl_files_is_a_suite_whose_states_are_sampled_from_a_stated_seed(folder, standins):
    suite = mine(folder, standins, init_states="sampled:3")
    (task,) = suite.tasks()
    assert (task.name, task.language) == ("bottle_on_stove", "put the wine bottle on the stove")
    suite.check([task])
    with opened(suite) as world:
        first = begin(world, init_id=0, seed=7)
        assert world.progress() == 0.0
        np.testing.assert_array_equal(first, begin(world, init_id=0, seed=8))
        assert np.abs(first - begin(world, init_id=1, seed=7)).max() > 1e-3
        beyond = begin(world, init_id=1000, seed=7)
        assert np.abs(beyond - begin(world, init_id=1000, seed=8)).max() > 1e-3, "of the episode's seed"
        world.reset(init_id=0, seed=7, settle_steps=2)
        assert "wine bottle" in str(world.truth())
    with opened(mine(folder, standins, init_states="sampled:4")) as world:
        assert np.abs(first - begin(world, init_id=0, seed=7)).max() > 1e-3


def test_states_of_files_and_instructions_are_as_given(folder, standins):
    stored = init_states(VANILLA)[:3]
    (folder / "states").mkdir()
    np.save(folder / "states/bottle_on_stove.npy", stored)
    said = {"bottle_on_stove": "Bring the Bottle"}
    suite = mine(folder, standins, init_states="states", instructions=said)
    assert suite.init_ids(suite.tasks()[0]).stored == 3
    key = EpisodeKey(suite="mine", task_id=0, init_id=2, seed=7)
    assert suite.instruction(key, "benchmark") == "Bring the Bottle"
    with opened(suite) as world:
        np.testing.assert_array_equal(begin(world, init_id=2, seed=7), stored[2])


def test_what_defines_a_task_is_in_the_protocol(folder, standins):
    file = folder / "tasks/bottle_on_stove.bddl"
    before = mine(folder, standins).describe("benchmark")
    assert before["tasks"].keys() == {"bottle_on_stove.bddl"}
    file.write_text(file.read_text() + "\n")
    assert mine(folder, standins).describe("benchmark") != before


def test_a_model_is_added_to_libero_s_with_its_file_s_name_as_category(folder, standins):
    write(folder / "assets/turbosquid_objects/soda_tin/soda_tin.xml", SODA)
    texts = {"plate_1 - plate": "plate_1 - plate soda_tin_1 - soda_tin"}
    texts["(:init"] = "(:init (On soda_tin_1 main_table_akita_black_bowl_region)"
    texts["(On akita_black_bowl_1 main_table_akita_black_bowl_region)"] = "(On akita_black_bowl_1 plate_1)"
    write(folder / "tasks/bottle_on_stove.bddl", problem(**texts))
    suite = mine(folder, standins, assets="assets")
    suite.check(suite.tasks())
    with opened(suite) as world:
        world.reset(init_id=0, seed=7, settle_steps=2)
        assert "soda_tin_1" in world.env.objects_dict
        assert world.progress() == 0.0
    assert "turbosquid_objects/soda_tin/soda_tin.xml" in suite.describe("benchmark")["tasks"]
    write(folder / "assets/turbosquid_objects/moka_pot/moka_pot.xml", SODA)
    with pytest.raises(UsageError, match=r"moka_pot.xml would replace .*moka_pot.xml; give it another"):
        mine(folder, standins, assets="assets").check(suite.tasks())


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('name="object"', 'name="soda"', r"expected <worldbody> with body/body\[@name='object'\]"),
        ('name="top_site"', 'name="top"', r"expected <worldbody> with body/site\[@name='top_site'\]"),
        (' group="0"', "", r'expected group="0" \(collides\) or "1"'),
        ("</mujoco>", "", r"not an XML file: no element found: line 8"),
    ],
)
def test_a_model_that_is_not_as_libero_s_is_one_line(tmp_path, old, new, complaint):
    write(tmp_path / "turbosquid_objects/odd_tin/odd_tin.xml", SODA.replace(old, new))
    with pytest.raises(UsageError, match=rf"odd_tin.xml: {complaint}"):
        add_models(tmp_path, {"odd_tin"})


def test_objects_that_find_no_room_are_one_line(folder, standins, monkeypatch):
    monkeypatch.setattr("sim_envs.libero.sim._PLACEMENT_ATTEMPTS", 1)
    where = "(On cream_cheese_1 main_table_cream_cheese_region)"
    plate = "(On cream_cheese_1 main_table_akita_black_bowl_region)"
    write(folder / "tasks/bottle_on_stove.bddl", problem(**{where: plate}))
    suite = mine(folder, standins)
    with pytest.raises(UsageError, match=r"bottle_on_stove.bddl: its objects found no room .* further apart"):
        suite.open(suite.tasks()[0])


def test_a_task_named_as_one_of_ours_is_no_sequence(folder, standins):
    (folder / "tasks/bottle_on_stove.bddl").rename(folder / "tasks/count_twice.bddl")
    with opened(mine(folder, standins)) as world:
        world.reset(init_id=0, seed=7, settle_steps=0)
        assert world.sequence is None


def test_libero_s_own_problems_pass(standins):
    known = {"workspaces": WORKSPACE_OF, "categories": known_categories(standins.path)}
    files = list((package_root() / "bddl_files").rglob("*.bddl"))
    assert len(files) == 130
    for file in files:
        check_problem(file, **known)


GOAL, MISSPELT = f"(And {BOTTLE})", BOTTLE.replace("bottle", "botle")


@pytest.mark.parametrize(
    ("old", "new", "before", "complaint"),
    [
        ("plate_1 - plate", "plate_1 - plat", 0, r"unknown category of objects 'plat'; did you mean 'plat"),
        ("plate_1 - plate", "plate_1", 0, r"expected plate_1 - CATEGORY, found plate_1"),
        (GOAL, BOTTLE, 0, r"expected \(:goal \(And"),
        (BOTTLE, MISSPELT, 0, r"unknown object or fixture 'wine_botle_1'; did you mean 'wine_bottle_1'"),
        (BOTTLE, "(Over wine_bottle_1 plate_1)", 0, r"unknown predicate 'over'"),
        (BOTTLE, "(On wine_bottle_1)", 0, r"expected 2 names after on, found \(on wine_bottle_1\)"),
        (BOTTLE, "(In wine_bottle_1 plate_1)", 0, r"unknown region 'plate_1'; did you mean 'm"),
        (BOTTLE, "(Open plate_1)", 0, r"unknown thing that can be opened 'plate_1'; did you mean 'wooden_ca"),
        (BOTTLE, "(TurnOn flat_stove_1_cook_region)", 0, r"unknown thing that can be switched 'flat_stove_"),
        ("(cook_region", "(cooking_region", 0, r"unknown region of flat_stove_1 'cooking_region'; did you"),
        (":target wine_rack_1", ":target main_table", 1, r"expected \(:ranges \(\(MIN_X"),
        ("main_table - table", "", 1, r"expected main_table - table, as libero_tabletop_manipulation has it"),
        ("- wine_rack", "- plate", 0, r"unknown category of fixtures 'plate'"),
        ("(On wine_rack_1 main_table_wine_rack_region)", "", 7, r"expected a place for wine_rack_1"),
        ("(On plate_1 main", "(On cream_cheese_1 main", -1, r"expected one place for cream_cheese_1"),
        (BOTTLE, "(On plate_1 main_table_plate_region)", 0, r"expected a goal that is not true at the start"),
        (GOAL, "", 1, r"expected \(:goal …\)"),
        ("(:goal", "(:goals", 0, r"unknown section ':goals'; did you mean ':goal'"),
        ("LIBERO_Tabletop_", "LIBERO_Table_", 0, r"unknown problem 'libero_table_manipulation'; did you m"),
        ("(:fixtures", "(:fixtures (", -7, r"expected a \) before \(:objects"),
        ("(On plate_1 main_table_plate_region)", "", 3, r"expected a place for plate_1, such as"),
        ("-0.21000000000000002 -0.060000000000000005", "0 1", 0, r"expected \(MIN_X MIN_Y MAX_X MAX_Y\)"),
        ("(:language put", "(put", 0, r"unknown section 'put'"),
    ],
)
def test_a_problem_that_is_wrong_is_one_line_with_its_line(folder, standins, old, new, before, complaint):
    file = folder / "tasks/bottle_on_stove.bddl"
    text = file.read_text()
    line = 1 + text[: text.index(old)].count("\n") - before
    file.write_text(text.replace(old, new))
    said = {"bottle_on_stove": "put it there"}
    suite = mine(folder, standins, instructions=said)
    with pytest.raises(UsageError, match=rf"bottle_on_stove.bddl, line {line}: {complaint}"):
        suite.check(suite.tasks())


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"bddl": "task"}, r"bddl 'task': there is no \*.bddl at .*/task"),
        ({"bddl": "."}, r"bddl '.': no \*.bddl is in"),
        ({"bddl": ["tasks", "tasks/bottle_on_stove.bddl"]}, r"bddl has two files named 'bottle_on_stove'"),
        ({"init_states": "sampled"}, r"init_states is sampled: write sampled:SEED, such as sampled:0, or"),
        ({"init_states": "none.npy"}, r"there is no \*.npy or \*.npz or \*.pruned_init at"),
        ({"instructions": {"bottle": "x"}}, r"unknown task 'bottle'; did you mean 'bottle_on_stove'"),
        ({"assets": "none"}, r"assets 'none': there is no folder"),
        ({"bdl": "tasks"}, r"mine has no such choice"),
    ],
)
def test_files_that_a_suite_names_and_are_not_there_are_one_line(folder, standins, environment, complaint):
    with pytest.raises(UsageError, match=complaint):
        mine(folder, standins, **environment)


def test_a_file_of_states_that_is_cut_short_or_lacks_a_task_is_named(folder, standins):
    states = folder / "bottle_on_stove.npy"
    np.save(states, init_states(VANILLA))
    states.write_bytes(states.read_bytes()[:5000])
    suite = mine(folder, standins, init_states=states.name)
    with pytest.raises(UsageError, match=r"bottle_on_stove.npy' is not a readable .npy file"):
        suite.init_ids(suite.tasks()[0])
    shutil.copy(folder / "tasks/bottle_on_stove.bddl", folder / "tasks/other.bddl")
    with pytest.raises(UsageError, match=r"init_states has no file for task 'other'; add other.npy"):
        mine(folder, standins, init_states=states.name)


def test_a_goal_that_is_met_or_out_of_reach_is_said(folder, standins):
    """As `oxygen-eval check` says it."""
    far = {"(0.04 -0.03 0.060000000000000005 -0.01)": "(0.44 -0.33 0.46 -0.31)"}
    write(folder / "tasks/far.bddl", problem(**{BOTTLE: "(On wine_bottle_1 plate_1)"}, **far))
    met = {"(On akita_black_bowl_1 main_table_akita_black_bowl_region)": "(On akita_black_bowl_1 plate_1)"}
    met[BOTTLE] = "(On akita_black_bowl_1 main_table_plate_region)"
    write(folder / "tasks/met.bddl", problem(**met))
    (folder / "tasks/bottle_on_stove.bddl").unlink()
    suite = mine(folder, standins, settle_steps=20)
    said = [check_task(suite, task, play=False).results[0].detail for task in suite.tasks()]
    assert said[0].startswith("unreachable: plate_1 is 1.2")
    assert said[1] == "the goal is true at the start"
    with opened(suite, 1) as world, pytest.raises(TaskError, match="the goal is true at the start"):
        world.reset(init_id=0, seed=7, settle_steps=20)


def test_states_of_another_task_are_one_line(folder, standins):
    np.save(folder / "bottle_on_stove.npy", np.zeros((2, 7)))
    suite = mine(folder, standins, init_states="bottle_on_stove.npy")
    with (
        opened(suite) as world,
        pytest.raises(TaskError, match=r"bottle_on_stove\.npy has initial states of 7 numb"),
    ):
        world.reset(init_id=0, seed=7, settle_steps=0)


@pytest.mark.slow
def test_a_suite_of_one_s_own_conforms_and_its_expert_solves_it(folder, standins):
    suite = mine(folder, standins)
    check_suite(suite)
    (task,) = suite.expert_tasks()
    with opened(suite) as world:
        world.reset(init_id=0, seed=7, settle_steps=10)
        expert = suite.expert(world)
        expert.reset(EpisodeKey(suite="mine", task_id=0, init_id=0, seed=7))
        for _ in range(60):
            if world.advance(expert.query(world.policy_state())[:5]).success:
                return
    pytest.fail(f"{re.escape(task.name)} is not solved")
