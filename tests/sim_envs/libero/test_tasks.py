"""LIBERO's tasks: order, initial states and wordings; every one loads, resets and moves."""

import collections
import pickle
import zipfile

import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.robots import tokenizer
from sim_envs.libero import tasks
from sim_envs.libero.assets import find_assets
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import (
    CONTROL_HZ,
    MEMORY_SUITE,
    SHORT_SUITE,
    SUITES,
    get_init_state,
    get_task,
    init_states,
    list_tasks,
)
from sim_envs.libero.wordings import wordings
from sim_envs.suite import open_suite
from tests.sim_envs.vocabulary import ALL_TASKS


@pytest.mark.parametrize("suite", [*SUITES, MEMORY_SUITE, SHORT_SUITE])
def test_every_task_has_its_problem_and_fifty_initial_states(suite):
    for task in list_tasks(suite):
        assert task.bddl_file.is_file()
        assert len({state.tobytes() for state in init_states(task)}) == 50


def test_task_ids_follow_libero_not_the_file_listing(golden):
    with np.load(golden / "libero_reference_rollouts.npz") as recorded:
        for name in recorded.files:
            if name.endswith(".bddl"):
                suite, task_id, *_ = name.split(".")
                assert get_task(suite, int(task_id)).name == str(recorded[name])


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: find_assets("standin"), r"'standin'; did you mean 'standins'\?.*path of a folder"),
        (lambda: list_tasks("libero-object"), "did you mean 'libero_object'"),
        (lambda: get_task("libero_goal", 10), "task ids are 0 to 9"),
        (lambda: get_init_state(get_task("libero_goal", 0), 50), "give ids from 0 to 49"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(call, complaint):
    with pytest.raises(UsageError, match=complaint):
        call()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"control_hz": 7}, "control_hz is 7, but interface 'LIBERO' of its world has 20; give 20"),
        ({"variation": 0.5}, "variation 0.5: libero_object does not vary"),
        ({"environment": {"nonsense": 3}}, "unknown key 'nonsense'.* In environment of suite libero_object"),
    ],
)
def test_a_protocol_that_the_suite_cannot_follow_is_one_line(changes, complaint):
    with pytest.raises(UsageError, match=complaint):
        open_suite("libero_object", assets="standins", **changes)


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    file = tmp_path / "evil.pruned_init"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"call": print}))
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print"):
        tasks._read_torch_array(file)


_SAMPLE = get_task("libero_90", 61)
_OTHERS = [task for task in ALL_TASKS if task != _SAMPLE]


@pytest.mark.parametrize(
    "task",
    [_SAMPLE, *(pytest.param(task, marks=pytest.mark.slow) for task in _OTHERS)],
    ids=lambda task: f"{task.suite}.{task.task_id}",
)
def test_a_task_loads_resets_and_moves_and_leaves_numpy_s_global_generator_alone(task, libero_assets):
    before = np.random.get_state()  # noqa: NPY002
    with LiberoSim(task, assets=find_assets(libero_assets)) as sim:
        last = len(init_states(task)) - 1
        sim.reset(init_id=last, seed=7, settle_steps=0)
        np.testing.assert_array_equal(sim.flat_state(), init_states(task)[last])
        advanced = sim.advance(np.full((2, 7), 0.5))
        assert (advanced.steps, advanced.success) == (2, False)
        elapsed = sim.flat_state()[0] - init_states(task)[last][0]
        assert elapsed == pytest.approx(2 / CONTROL_HZ)
    np.testing.assert_equal(np.random.get_state(), before)  # noqa: NPY002


LONGEST = 22
"""Tokens of an instruction that the bundled policy has room for."""


VERBS = {"pick", "up", "put", "place", "take", "grab", "set", "goes", "go", "push", "slide", "shove", "stack"}
VERBS |= {"open", "pull", "get", "close", "closed", "shut", "turn", "switch", "power", "please"}
LITTLE_WORDS = {"and", "then", "it", "them", "they"}


def nouns(words: str) -> collections.Counter[str]:
    """The words of things and places, how often each."""
    return collections.Counter(word for word in words.split() if word not in VERBS | LITTLE_WORDS)


def test_every_task_can_be_said_in_other_words_of_the_same_things_and_places_none_of_them_twice():
    """The bundled policy has room for those of its suites."""
    vocabulary = tokenizer.tiny()
    for task in ALL_TASKS:
        training, held_out = wordings(task.language, "training"), wordings(task.language, "held_out")
        said = [*training, *held_out]
        assert (training[0], len(training) >= 5, len(held_out)) == (task.language, True, 3)
        assert len(set(said)) == len(said)
        for words in said:
            assert nouns(words) == nouns(task.language), words
            assert len(words) <= 1.7 * len(task.language)
            assert words == words.lower()
            assert task.suite not in SUITES[:3] or len(vocabulary.encode(words)) <= LONGEST


def test_training_never_says_what_is_held_out_but_says_its_words_of_the_same_task():
    suites = [open_suite(suite, assets="standins").training_wordings() for suite in SUITES]
    training = {instruction: shown for suite in suites for instruction, shown in suite.items()}
    said = {words for all_of_one in training.values() for words in all_of_one}
    assert set(training) == {task.language for task in ALL_TASKS}
    for task in ALL_TASKS:
        known = {word for words in training[task.language] for word in words.split()}
        for words in wordings(task.language, "held_out"):
            assert words not in said
            assert set(words.split()) <= known
