"""The simulator core: a trajectory is a function of its episode key and actions, and is LIBERO's."""

from collections.abc import Callable

import numpy as np
import pytest

from sim_envs.blas import pin_kernels
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import get_task, init_states

OpenSim = Callable[[str, int], LiberoSim]


def _start(sim: LiberoSim, init_id: int, seed: int) -> np.ndarray:
    sim.reset(init_id=init_id, seed=seed, settle_steps=0)
    return sim.flat_state()


def test_reference_trajectories_are_reproduced_to_the_last_bit_whatever_was_played_before(open_sim, golden):
    if not pin_kernels():
        pytest.skip("this CPU cannot run the kernels that the reference was made with (AVX-512)")
    with np.load(golden / "libero_reference_rollouts.npz") as recorded:
        for name in sorted({name.rsplit(".", 1)[0] for name in recorded.files if name != "meta"}):
            suite, task_id, init_id = name.split(".")
            sim = open_sim(suite, int(task_id))
            sim.reset(init_id=4, seed=8, settle_steps=2)
            sim.advance(np.random.default_rng(1).uniform(-1, 1, (6, 7)))
            sim.reset(init_id=int(init_id), seed=7, settle_steps=10)
            actions = recorded[f"{name}.actions"].reshape(-1, 5, 7)
            for chunk, expected in zip(actions, recorded[f"{name}.sim_state"], strict=True):
                sim.advance(chunk)
                np.testing.assert_array_equal(sim.flat_state(), expected, err_msg=name)


@pytest.mark.parametrize(
    ("suite", "task_id"), [("libero_object", 2), ("libero_spatial", 9), ("libero_10", 3)]
)
def test_a_sampled_initial_state_is_its_own_and_like_the_stored_ones(open_sim, suite, task_id):
    sim = open_sim(suite, task_id)
    sampled = [_start(sim, init_id, 7) for init_id in (1000, 1001, 1002, 1003)]
    np.testing.assert_array_equal(_start(sim, 1000, 7), sampled[0])
    assert not np.array_equal(_start(sim, 1000, 8), sampled[0])
    stored = init_states(sim.task)
    spread = stored.std(axis=0)
    apart = np.ptp(sampled, axis=0)
    assert np.all(apart[spread > 1e-4] > 0)
    np.testing.assert_array_equal(apart[spread == 0], 0)
    np.testing.assert_allclose(np.mean(sampled, axis=0), stored.mean(axis=0), atol=0.05)


def test_the_global_generator_of_numpy_is_left_alone(libero_assets):
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    with LiberoSim(get_task("libero_goal", 4), assets=str(libero_assets)) as sim:
        sim.reset(init_id=0, seed=7, settle_steps=0)
    assert np.random.random() == expected  # noqa: NPY002
