"""The expert's noise is in what it does, not in what it means; and it begins again what went wrong."""

import numpy as np

from sim_envs.droid.expert import DroidExpert, JointNoise
from sim_envs.droid.sim import DroidSim
from sim_envs.world import EpisodeKey

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
