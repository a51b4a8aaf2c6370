"""Against LIBERO's own environment in the same process: states, pictures, predicates, byte by byte."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim_envs.libero.bootstrap import load_libero, use_assets
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import get_init_state

OpenSim = Callable[[str, int], LiberoSim]


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
