"""The scripted policies: the expert solves real tasks, the controls do not, and both are reproducible."""

from collections.abc import Callable

import numpy as np
import pytest

from sim_envs.libero.conventions import LIBERO_INTERFACE
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.experts.steering import ArmModel
from sim_envs.libero.sim import LiberoSim
from sim_envs.scripted.gripper import PANDA
from sim_envs.scripted.motion import Waypoint
from sim_envs.scripted.policy import Random
from sim_envs.scripted.poses import Pose
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


@pytest.mark.assets
def test_the_gripper_is_no_larger_than_assumed(open_sim: OpenSim) -> None:
    sim = open_sim("libero_object", 9)
    sim.reset(init_id=0, seed=7, settle_steps=10)
    model, data, grip = sim.env.sim.model._model, sim.env.sim.data._data, ExpertScene(sim.env).gripper

    def extent(name: str) -> np.ndarray:
        geom = model.geom(f"gripper0_{name}")
        mesh = model.mesh(geom.dataid[0])
        vertices = model.mesh_vert[mesh.vertadr[0] :][: mesh.vertnum[0]]
        placed = data.geom(geom.id)
        local = grip.to_local(vertices @ placed.xmat.reshape(3, 3).T + placed.xpos)
        return np.stack([local.min(axis=0), local.max(axis=0)])

    finger, hand = extent("finger2_collision"), extent("hand_collision")
    assert finger[1, 2] == pytest.approx(PANDA.tip, abs=1e-3)
    assert finger[1, 0] == pytest.approx(PANDA.thick_outer, abs=1e-3)
    assert finger[1, 1] == pytest.approx(PANDA.half_width, abs=1e-3)
    assert -hand[1, 2] == pytest.approx(PANDA.palm, abs=2e-3)
    assert -hand[0, 2] == pytest.approx(PANDA.back, abs=2e-3)
    assert np.abs(hand[:, :2]).max(axis=0) == pytest.approx(PANDA.hand, abs=5e-3)


@pytest.mark.assets
def test_the_arm_goes_where_it_is_foreseen_to_go(open_sim: OpenSim) -> None:
    sim = open_sim("libero_object", 9)
    sim.reset(init_id=0, seed=7, settle_steps=10)
    scene = ExpertScene(sim.env)
    start = scene.gripper
    target = start.moved(np.array([0.05, 0.08, -0.06, 0.0, 0.0, 0.2]))
    for _ in range(6):
        pose, velocity = scene.gripper, scene.gripper_velocity
        arm = ArmModel.near(scene.mobility)
        plan = arm.follow((Waypoint(pose=target),), pose, velocity, passed=0, steps=5)
        sim.advance(plan.actions(-1.0))
        for delta in plan.deltas:
            pose, velocity = arm.predict(pose, velocity, delta)
        assert np.linalg.norm(scene.gripper.position - pose.position) < 0.005
    assert np.linalg.norm(scene.gripper.twist_to(target)[:3]) < 0.001


@pytest.mark.parametrize("least", [0.0, 1e-9, 1e-6])
@pytest.mark.parametrize("seed", range(6))
def test_a_stretched_arm_that_cannot_move_one_way_is_steered_all_the_same(least: float, seed: int) -> None:
    directions = np.linalg.qr(np.random.default_rng(seed).normal(size=(6, 6)))[0]
    mobility = directions @ np.diag([1.3, 1.0, 0.7, 0.08, 0.06, least]) @ directions.T
    assert np.abs(ArmModel.near(mobility).gain).max() < 10


def test_actions_are_within_bounds_and_waypoints_are_passed_in_order() -> None:
    arm = ArmModel.near(np.eye(6))
    start = Pose(position=np.zeros(3), rotation=np.eye(3))
    path = [
        Waypoint(pose=start.moved(np.array([x, 0.0, z, 0.0, 0.0, 0.0]))) for x, z in ((0, 0.3), (0.3, 0.3))
    ]
    plan = arm.follow(path, start, np.zeros(6), passed=0, steps=80)
    assert np.abs(plan.actions(1.0)).max() <= 1.0
    assert np.all(np.diff(plan.passed) >= 0)
    assert plan.passed[-1] == 2


def test_random_actions_belong_to_the_episode() -> None:
    policy = Random(LIBERO_INTERFACE)
    sampled = []
    for init_id in (0, 1, 0):
        policy.reset(_key("libero_object", 0, init_id))
        sampled.append(policy.query(np.empty(8)))
    np.testing.assert_array_equal(sampled[0], sampled[2])
    assert not np.array_equal(sampled[0], sampled[1])
    assert np.abs(sampled).max() <= 1.0
