"""LIBERO's tasks: its own order and words, stored initial states; every task loads, resets and moves."""

import io
import pickle
import zipfile

import numpy as np
import pytest

from configs.errors import UsageError
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
from sim_envs.suite import open_suite


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
    content = io.BytesIO()
    pickle.dump({"call": print}, content)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content.getvalue())
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print"):
        tasks._read_torch_array(file)


_SAMPLE = get_task("libero_90", 61)
_OTHERS = [task for suite in SUITES for task in list_tasks(suite) if task != _SAMPLE]


@pytest.mark.parametrize(
    "task",
    [_SAMPLE, *(pytest.param(task, marks=pytest.mark.slow) for task in _OTHERS)],
    ids=lambda task: f"{task.suite}.{task.task_id}",
)
def test_a_task_loads_resets_and_moves(task, libero_assets):
    with LiberoSim(task, assets=find_assets(libero_assets)) as sim:
        last = len(init_states(task)) - 1
        sim.reset(init_id=last, seed=7, settle_steps=0)
        np.testing.assert_array_equal(sim.flat_state(), init_states(task)[last])
        advanced = sim.advance(np.full((2, 7), 0.5))
        assert (advanced.steps, advanced.success) == (2, False)
        elapsed = sim.flat_state()[0] - init_states(task)[last][0]
        assert elapsed == pytest.approx(2 / CONTROL_HZ)
