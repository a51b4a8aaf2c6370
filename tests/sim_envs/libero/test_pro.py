"""LIBERO-PRO: its tasks, what the policy is told, its own objects, and goals that are mended."""

import gc
import re

import numpy as np
import pytest

from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from sim_envs.blas import pin_kernels
from sim_envs.libero import copies, parity
from sim_envs.libero.bddl import parse
from sim_envs.libero.copies import mended
from sim_envs.libero.experts.scene import Goal
from sim_envs.libero.pro.suite import DIMENSIONS, LIBERO_PRO
from sim_envs.libero.sim import LiberoSim, read_problem
from sim_envs.libero.tasks import get_task, init_states, list_tasks
from sim_envs.libero.truth import Names, goal_sentences
from sim_envs.suite import open_suite
from sim_envs.world import read_truth

NAMES = ("spatial", "object", "goal", "10")
SUITES = [f"libero_pro_{name}_{dimension}" for name in NAMES for dimension in DIMENSIONS]


@pytest.mark.usefixtures("pro_copy")
@pytest.mark.parametrize("suite", SUITES)
def test_every_task_is_told_as_its_problem_says_and_has_fifty_states(suite):
    opened, vanilla = open_suite(suite, assets="auto"), suite.replace("pro_", "").rpartition("_")[0]
    listed = opened.tasks()
    assert [task.name for task in listed] == [task.name for task in list_tasks(vanilla)]
    for task in listed:
        key = EpisodeKey(suite=suite, task_id=task.task_id, init_id=0, seed=7)
        said = " ".join(read_problem(task)["language_instruction"])
        assert opened.instruction(key, "benchmark") == said
        assert len({state.tobytes() for state in init_states(task)}) == 50
        assert not task.missing
    if suite.endswith(("_lan", "_task")):
        own = [" ".join(read_problem(task)["language_instruction"]) for task in list_tasks(vanilla)]
        changed = sum(task.language != words for task, words in zip(listed, own, strict=True))
        assert changed == 10, "the perturbed instruction, not that of the file's name"


@pytest.mark.usefixtures("pro_copy")
@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_every_task_opens_with_the_installed_assets_and_begins_unsolved_as_stored(suite):
    opened = open_suite(suite, assets="auto")
    for task in opened.tasks():
        with opened.open(task) as sim:
            sim.reset(init_id=0, seed=7, settle_steps=0)
            np.testing.assert_array_equal(sim.flat_state(), init_states(task)[0])
            assert not sim.env._check_success(), task.name
            assert read_truth(sim)[1] is None, task.name
        gc.collect()  # closing a simulator does not, in tests


@pytest.mark.usefixtures("pro_copy")
@pytest.mark.parametrize("name", NAMES)
def test_objects_of_other_colours_have_the_nouns_of_libero_s(name):
    """As in the instructions. Four tasks have another thing, such as a bowl for the book."""
    listed = zip(open_suite(f"libero_pro_{name}_object").tasks(), list_tasks(f"libero_{name}"), strict=True)
    named = [(_named(task, vanilla.language), _named(vanilla, vanilla.language)) for task, vanilla in listed]
    others = [number for number, (ours, theirs) in enumerate(named) if ours != theirs]
    assert others == ([3, 5, 6, 9] if name == "10" else [])


def _named(task, instruction):
    problem = read_problem(task)
    names, goals = Names(problem, instruction), Goal.all_of(problem["goal_state"])
    clauses = re.sub(r"{.*?}", "", str(goal_sentences(goals, instruction).clauses))
    return sorted(names.things.values()), sorted(names.fixtures.values()), clauses


@pytest.mark.usefixtures("pro_copy")
def test_its_own_objects_are_missing_elsewhere():
    listed = open_suite("libero_pro_object_object", assets="standins").tasks()
    assert all("red_basket" in task.missing for task in listed)


def test_without_a_copy_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv(LIBERO_PRO.variable, raising=False)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    copies._found.cache_clear()
    said = r"not installed: run `oxygen-eval setup libero-pro`, or .*--libero-pro PATH"
    with pytest.raises(UsageError, match=said):
        open_suite(SUITES[0], assets="standins")


@pytest.mark.parametrize("body", ["(And {})", "And {})", "{})"])
def test_a_goal_with_a_parenthesis_too_many_is_mended(tmp_path, monkeypatch, standins, body):
    task = get_task("libero_spatial", 0)
    text, goal = task.bddl_file.read_text(), "(On akita_black_bowl_1 plate_1)"
    assert text.count(f"(And {goal})") == 1
    file = tmp_path / "own.bddl"
    file.write_text(text.replace(f"(And {goal})", body.format(goal)))
    copy = mended(file)
    assert (copy is None) == body.startswith("(And")
    if copy is not None:
        line = len(file.read_text().rstrip().split("\n"))
        with pytest.raises(UsageError, match=rf"own.bddl, line {line}: expected the end of the file"):
            parse(file)
    parse(copy or file)
    monkeypatch.setattr(type(task), "bddl_file", copy or file)
    assert read_problem(task)["goal_state"] == [["on", "akita_black_bowl_1", "plate_1"]]
    with LiberoSim(task, assets=standins, camera_size=64) as sim:
        sim.reset(init_id=0, seed=7, settle_steps=0)
        assert sim.progress() == 0.0


@pytest.mark.usefixtures("pro_copy")
@pytest.mark.slow
def test_recorded_episodes_of_the_published_code_are_equal(golden, reference_assets, capsys):
    if not pin_kernels():
        pytest.skip("this CPU cannot run the kernels that the reference was made with (AVX-512)")
    file = golden / "libero_pro.npz"
    assert parity.main([str(file), "--assets", str(reference_assets)]) == 0, capsys.readouterr().out
