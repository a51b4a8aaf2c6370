"""Tasks of every kind of scene load, reset and move; all 130 with OXYGEN_TEST_ALL_TASKS=1 (some minutes)."""

from pathlib import Path

import numpy as np
import pytest

from sim_envs.libero.assets import find_assets
from sim_envs.libero.libero_env import CONTROL_HZ
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import SUITES, LiberoTask, get_task, init_states, list_tasks

_SAMPLE = get_task("libero_90", 61)
_OTHERS = [task for suite in SUITES for task in list_tasks(suite) if task != _SAMPLE]


@pytest.mark.parametrize(
    "task",
    [_SAMPLE, *(pytest.param(task, marks=pytest.mark.slow) for task in _OTHERS)],
    ids=lambda task: f"{task.suite}.{task.task_id}",
)
def test_a_task_loads_resets_and_moves(task: LiberoTask, libero_assets: Path) -> None:
    with LiberoSim(task, assets=find_assets(libero_assets)) as sim:
        last = len(init_states(task)) - 1
        sim.reset(init_id=last, seed=7, settle_steps=0)
        np.testing.assert_array_equal(sim.flat_state(), init_states(task)[last])
        advanced = sim.advance(np.full((2, 7), 0.5))
        assert (advanced.steps, advanced.success) == (2, False)
        elapsed = sim.flat_state()[0] - init_states(task)[last][0]
        assert elapsed == pytest.approx(2 / CONTROL_HZ)
