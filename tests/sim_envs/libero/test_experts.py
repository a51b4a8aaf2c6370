"""The scripted policies: the expert solves real tasks, the controls do not, and both are reproducible."""

from collections.abc import Callable

import numpy as np
import pytest

from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.experts.steering import ArmModel
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import LIBERO_INTERFACE
from sim_envs.scripted.policy import Random
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey
from tests.sim_envs.libero.playing import Attempt, attempt

OpenSim = Callable[[str, int], LiberoSim]


def _key(suite: str, task_id: int, init_id: int = 0) -> EpisodeKey:
    return EpisodeKey(suite=suite, task_id=task_id, init_id=init_id, seed=7)


@pytest.fixture(scope="module")
def solved(open_sim: OpenSim) -> tuple[Attempt, np.ndarray]:
    """An episode of the expert, and the simulator's state at its end."""
    sim = open_sim("libero_object", 9)
    return attempt(sim, Expert(sim)), sim.flat_state()


@pytest.mark.assets
def test_the_expert_puts_a_thing_into_a_basket(solved: tuple[Attempt, np.ndarray]) -> None:
    done, _ = solved
    assert done.success
    assert done.phases[:3] == (Phase.APPROACH, Phase.GRASP, Phase.CARRY)


@pytest.mark.assets
@pytest.mark.slow
def test_the_expert_goes_on_from_any_state_of_its_task(open_sim: OpenSim) -> None:
    sim = open_sim("libero_object", 9)
    key = _key("libero_object", 9)
    sim.reset(init_id=0, seed=7, settle_steps=10)
    dropping = np.array([[0.0, 0.3, 1.0, 0.0, 0.0, 0.0, -1.0]])
    expert = Expert(sim)
    expert.reset(key)
    dropped, solved = False, False
    for _ in range(70):
        actions = expert.query(np.empty(8))[:5]
        if (
            expert.phase is Phase.CARRY
            and not dropped
            and ExpertScene(sim.env).position("orange_juice_1")[2] > 0.1
        ):
            actions, dropped = np.repeat(dropping, 15, axis=0), True
        if solved := sim.advance(actions).success:
            break
    assert dropped
    assert solved


@pytest.mark.parametrize("least", [0.0, 1e-9, 1e-6])
@pytest.mark.parametrize("seed", range(6))
def test_a_stretched_arm_that_cannot_move_one_way_is_steered_all_the_same(least: float, seed: int) -> None:
    directions = np.linalg.qr(np.random.default_rng(seed).normal(size=(6, 6)))[0]
    mobility = directions @ np.diag([1.3, 1.0, 0.7, 0.08, 0.06, least]) @ directions.T
    assert np.abs(ArmModel.near(mobility).gain).max() < 10


def test_random_actions_belong_to_the_episode() -> None:
    policy = Random(LIBERO_INTERFACE)
    sampled = []
    for init_id in (0, 1, 0):
        policy.reset(_key("libero_object", 0, init_id))
        sampled.append(policy.query(np.empty(8)))
    np.testing.assert_array_equal(sampled[0], sampled[2])
    assert not np.array_equal(sampled[0], sampled[1])
    assert np.abs(sampled).max() <= 1.0
