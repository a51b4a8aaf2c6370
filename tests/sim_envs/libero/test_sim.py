"""The simulator core: a trajectory is a function of its episode key and actions, and is LIBERO's."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sim_envs.blas import pin_kernels
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import get_task, init_states

OpenSim = Callable[[str, int], LiberoSim]


def _episode_names(file: Path) -> list[str]:
    with np.load(file) as recorded:
        return sorted({name.rsplit(".", 1)[0] for name in recorded.files if name != "meta"})


def _random_actions(steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 7))


def _trajectory(sim: LiberoSim, init_id: int, seed: int, actions: np.ndarray) -> np.ndarray:
    sim.reset(init_id=init_id, seed=seed, settle_steps=2)
    states = [sim.flat_state()]
    for action in actions:
        sim.advance(action[None])
        states.append(sim.flat_state())
    return np.array(states)


def _start(sim: LiberoSim, init_id: int, seed: int) -> np.ndarray:
    sim.reset(init_id=init_id, seed=seed, settle_steps=0)
    return sim.flat_state()


def test_reference_trajectories_are_reproduced_to_the_last_bit(open_sim: OpenSim, golden: Path) -> None:
    file = golden / "libero_reference_rollouts.npz"
    if not pin_kernels():
        pytest.skip("this CPU cannot run the kernels that the reference was made with (AVX-512)")
    with np.load(file) as recorded:
        for name in _episode_names(file):
            suite, task_id, init_id = name.split(".")
            sim = open_sim(suite, int(task_id))
            sim.reset(init_id=int(init_id), seed=7, settle_steps=10)
            actions = recorded[f"{name}.actions"].reshape(-1, 5, 7)
            for chunk, expected in zip(actions, recorded[f"{name}.sim_state"], strict=True):
                sim.advance(chunk)
                np.testing.assert_array_equal(sim.flat_state(), expected, err_msg=name)


@pytest.mark.parametrize(
    ("suite", "task_id"), [("libero_goal", 3), pytest.param("libero_10", 9, marks=pytest.mark.slow)]
)
def test_an_episode_does_not_depend_on_those_before_it(open_sim: OpenSim, suite: str, task_id: int) -> None:
    sim = open_sim(suite, task_id)
    actions = _random_actions(4)
    first = _trajectory(sim, 3, 7, actions)
    _trajectory(sim, 4, 8, _random_actions(6, seed=1))
    np.testing.assert_array_equal(_trajectory(sim, 3, 7, actions), first)


@pytest.mark.parametrize(("suite", "task_id"), [("libero_object", 2), ("libero_spatial", 9)])
def test_a_sampled_initial_state_is_its_own_and_like_the_stored_ones(
    open_sim: OpenSim, suite: str, task_id: int
) -> None:
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


def test_the_global_generator_of_numpy_is_left_alone(libero_assets: Path) -> None:
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    with LiberoSim(get_task("libero_goal", 4), assets=str(libero_assets)) as sim:
        sim.reset(init_id=0, seed=7, settle_steps=0)
    assert np.random.random() == expected  # noqa: NPY002
