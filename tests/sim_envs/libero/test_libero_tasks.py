"""LIBERO's tasks as data: LIBERO's own order and words, initial states read without running a pickle."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from configs.errors import UsageError
from sim_envs.libero import tasks
from sim_envs.libero.tasks import SUITES, get_init_state, get_task, init_states, list_tasks


def test_there_are_130_tasks_in_five_suites() -> None:
    assert {suite: len(list_tasks(suite)) for suite in SUITES} == {
        "libero_spatial": 10,
        "libero_object": 10,
        "libero_goal": 10,
        "libero_10": 10,
        "libero_90": 90,
    }


@pytest.mark.parametrize("suite", SUITES)
def test_every_task_has_its_problem_and_initial_states(suite: str) -> None:
    for task in list_tasks(suite):
        assert task.bddl_file.is_file()
        assert task.init_states_file.is_file()


def test_task_ids_follow_libero_not_the_file_listing(golden: Path) -> None:
    with np.load(golden / "libero_reference_rollouts.npz") as recorded:
        for name in recorded.files:
            if name.endswith(".bddl"):
                suite, task_id, *_ = name.split(".")
                assert get_task(suite, int(task_id)).name == str(recorded[name])


@pytest.mark.parametrize(
    ("suite", "task_id", "language"),
    [
        ("libero_object", 2, "pick up the salad dressing and place it in the basket"),
        ("libero_10", 2, "turn on the stove and put the moka pot on it"),
        ("libero_90", 0, "close the top drawer of the cabinet"),
    ],
)
def test_the_instruction_is_the_one_policies_were_trained_on(suite: str, task_id: int, language: str) -> None:
    assert get_task(suite, task_id).language == language


def test_no_instruction_keeps_its_scene_or_underscores() -> None:
    for suite in SUITES:
        for task in list_tasks(suite):
            assert "_" not in task.language
            assert "SCENE" not in task.language
            assert task.language.split()[0] in {"close", "open", "pick", "push", "put", "stack", "turn"}


def test_initial_states_are_a_read_only_table() -> None:
    states = init_states(get_task("libero_goal", 4))
    assert states.shape == (50, 79)
    assert states.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        states[0, 0] = 1


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: list_tasks("libero-object"), "did you mean 'libero_object'"),
        (lambda: get_task("libero_goal", 10), "task ids are 0 to 9"),
        (lambda: get_task("libero_goal", -1), "task ids are 0 to 9"),
        (lambda: get_init_state(get_task("libero_goal", 0), 50), "initial states are 0 to 49"),
        (lambda: get_init_state(get_task("libero_goal", 0), -1), "initial states are 0 to 49"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(call, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        call()


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "evil.pruned_init"
    content = io.BytesIO()
    pickle.dump({"call": print}, content)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content.getvalue())
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print"):
        tasks._read_torch_array(file)
