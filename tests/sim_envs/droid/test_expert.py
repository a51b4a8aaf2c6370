"""The expert's noise is in what it does, not in what it means; and it begins again what went wrong."""

from contextlib import closing

import mujoco
import numpy as np
import pytest

from configs.errors import UsageError
from sim_envs.droid.expert import DroidExpert, JointNoise
from sim_envs.droid.sim import DroidSim
from sim_envs.droid.station import Station
from sim_envs.suite import open_suite
from sim_envs.world import EpisodeKey
from tests.sim_envs.playing import attempt

KEY = EpisodeKey(suite="droid_tabletop", task_id=0, init_id=0, seed=7)


def begun(sim: DroidSim, *, noise: float = 0.0) -> DroidExpert:
    expert = DroidExpert(sim, noise=noise)
    expert.reset(KEY)
    return expert


def play(sim: DroidSim, expert: DroidExpert, *, steps: int) -> bool:
    """Whether it succeeds in so many control steps."""
    return any(sim.advance(expert.query(sim.policy_state())[:8]).success for _ in range(steps // 8))


def test_noise_is_in_what_it_does_and_no_two_episodes_are_alike(begin_droid):
    sim = begin_droid()
    expert = begun(sim, noise=1.0)
    done = expert.query(sim.policy_state())
    assert np.abs(done - expert.intended)[:, :7].max() > 0.02
    again = begun(begin_droid(), noise=1.0)
    assert np.array_equal(done, again.query(sim.policy_state()))
    other = EpisodeKey(suite="droid_tabletop", task_id=0, init_id=1, seed=7)
    assert JointNoise(1.0, KEY).pace != JointNoise(1.0, other).pace


def test_it_goes_on_from_where_somebody_else_has_left_the_world(begin_droid):
    sim = begin_droid()
    expert = begun(sim)
    assert not play(sim, expert, steps=80), "under way, the cube in the gripper"
    successor = DroidExpert(sim)
    successor.reset(KEY)
    assert play(sim, successor, steps=200)


def test_what_it_has_simulated_it_does_not_simulate_again(begin_droid, monkeypatch):
    steps, real = [], Station.step
    monkeypatch.setattr(Station, "step", lambda station, action: steps.append(1) or real(station, action))
    sim = begin_droid()
    expert = begun(sim, noise=1.0)
    for _ in range(12):
        steps.clear()
        actions = expert.query(sim.policy_state())
        simulated = len(steps)
        fresh = begun(sim, noise=1.0)
        fresh._history = expert._history[:1]
        assert np.array_equal(actions, fresh.query(sim.policy_state()))
        assert np.array_equal(expert.intended, fresh.intended)
        sim.advance(actions[:3])
    assert simulated == 3


def test_it_does_not_rise_first_out_of_a_grasp_that_is_almost_right(begin_droid):
    sim = begin_droid()
    expert, cube = begun(sim), sim.station.pose("cube")
    while sim.station.end_effector[2] > cube.high[2] + 0.05:
        sim.advance(expert.query(sim.policy_state())[:1])
    aside = expert.query(sim.policy_state())[:1].copy()
    aside[:, :7] = [0.25, 0, 0, 0, 0, 0, 0]
    for _ in range(3):  # about 2 cm
        sim.advance(aside)
    start = sim.station.end_effector
    assert 0.01 < np.linalg.norm(start[:2] - cube.middle[:2]) < 0.03
    successor, heights = begun(sim), [start[2]]
    while sim.station.gripper < 0.1:
        heights.append(sim.advance(successor.query(sim.policy_state())[:1]).end_effector[-1][2])
    assert max(heights) < max(start[2], cube.high[2] + 0.035) + 0.01


def test_what_it_does_depends_on_positions_alone_which_a_policy_observes(begin_droid):
    sim = begin_droid()
    expert = begun(sim)
    while sim.station.end_effector[2] > 0.25:
        sim.advance(expert.query(sim.policy_state())[:1])
    actions = []
    for velocity in (0.0, 0.3):
        sim.station.data.qvel[:7] = velocity
        actions.append(begun(sim).query(sim.policy_state())[0])
    assert np.array_equal(*actions)


def test_its_actions_do_not_alternate_between_control_steps(begin_droid):
    sim = begin_droid("banana_in_bin")
    expert, actions = begun(sim), []
    for _ in range(20):
        actions.extend(expert.query(sim.policy_state())[:8])
        sim.advance(np.array(actions[-8:]))
    assert np.abs(np.diff(np.array(actions)[:, :7], 2, axis=0)).mean(axis=0).max() < 0.15


def test_after_the_first_step_an_object_out_of_reach_makes_it_hold_still(begin_droid):
    def take_away(sim):
        sim.station.data.joint("cube").qpos[0] += 1.0
        mujoco.mj_forward(sim.station.model, sim.station.data)

    sim = begin_droid()
    sim.advance(begun(sim).query(sim.policy_state())[:1])
    take_away(sim)
    path = sim.advance(begun(sim).query(sim.policy_state())).end_effector
    assert np.linalg.norm(path[-1] - path[0]) < 0.02
    take_away(begin_droid())
    with pytest.raises(UsageError, match="cannot reach 'cube'"):
        begun(sim).query(sim.policy_state())


def solved(suite: str, task: str, init_id: int) -> bool:
    opened = open_suite(suite)
    (chosen,) = [each for each in opened.tasks() if each.name == task]
    with closing(opened.open(chosen)) as world:
        key = EpisodeKey(suite=suite, task_id=chosen.task_id, init_id=init_id, seed=7)
        return attempt(world, opened.expert(world), key=key).success


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["droid_tabletop", "droid_tabletop_jointpos"])
@pytest.mark.parametrize("task", [task.name for task in open_suite("droid_tabletop").expert_tasks()])
def test_the_expert_solves_thirteen_tasks_in_nine_of_ten_states_either_way(suite, task):
    assert sum(solved(suite, task, init_id) for init_id in range(10)) >= 9


@pytest.mark.parametrize("task", ["push_box_to_mark", "open_drawer", "stand_bottle_up"])
def test_the_expert_says_what_it_cannot_do(task):
    suite = open_suite("droid_tabletop")
    (chosen,) = [each for each in suite.tasks() if each.name == task]
    with closing(suite.open(chosen)) as world, pytest.raises(UsageError, match=f"cannot do task {task}"):
        suite.expert(world)
