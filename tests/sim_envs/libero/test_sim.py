"""A trajectory is a function of its episode key and actions, and is that of LIBERO's own environment."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim_envs.blas import pin_kernels
from sim_envs.libero.assets import load_libero, use_assets
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import get_init_state, init_states

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


@pytest.fixture(
    scope="module", params=[("libero_goal", 7), ("libero_10", 3)], ids=lambda pair: f"{pair[0]}.{pair[1]}"
)
def pair(request: pytest.FixtureRequest, open_sim: OpenSim) -> Iterator[tuple[LiberoSim, Any]]:
    """Our simulator and LIBERO's environment, same task. (One turns on a stove, one closes a drawer.)"""
    sim = open_sim(*request.param)
    with use_assets(sim.assets.path):
        usual = load_libero().OffScreenRenderEnv(
            bddl_file_name=str(sim.task.bddl_file), camera_heights=256, camera_widths=256
        )
        yield sim, usual
        usual.close()


@pytest.mark.slow
def test_the_same_calls_give_the_same_states_and_pictures(pair):
    sim, usual = pair
    actions = np.random.default_rng(1).uniform(-1, 1, (6, 7))
    usual.seed(11)
    usual.reset()
    usual.set_init_state(get_init_state(sim.task, 5))
    for action in [SETTLE_ACTION, SETTLE_ACTION, *actions]:
        expected, _, done, _ = usual.step(action)
    sim.reset(init_id=5, seed=11, settle_steps=2)
    assert sim.advance(actions).success == done
    seen = sim.observe()
    np.testing.assert_array_equal(sim.flat_state(), usual.get_sim_state())
    np.testing.assert_array_equal(seen.state[:3], expected["robot0_eef_pos"])
    np.testing.assert_array_equal(seen.state[6:], expected["robot0_gripper_qpos"])
    for name, camera in (("image", "agentview"), ("wrist_image", "robot0_eye_in_hand")):
        np.testing.assert_array_equal(seen.images[name], expected[f"{camera}_image"][::-1, ::-1])


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1))
def test_contacts_are_those_that_robosuite_finds(open_sim, seed):
    from robosuite.environments.base import MujocoEnv

    sim = open_sim("libero_goal", 7)
    random = np.random.default_rng(seed)
    sim.reset(init_id=int(random.integers(50)), seed=0, settle_steps=int(random.integers(4)))
    env = sim.env
    groups = [
        *env.objects,
        *env.fixtures,
        "table_collision",
        ["gripper0_finger1_pad_collision", "no_such_geom"],
    ]
    for _ in range(20):
        first, second = (groups[index] for index in random.integers(len(groups), size=2))
        assert env.check_contact(first, second) == MujocoEnv.check_contact(env, first, second)
        assert env.check_contact(first) == MujocoEnv.check_contact(env, first)
