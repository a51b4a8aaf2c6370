"""The loop: how many queries, how many steps, and what never reaches a simulator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.load import load
from configs.schema import SuiteConfig
from eval.rollout.rollout import ActionError, executable, rollout
from sim_envs.fake import FakeWorld
from sim_envs.world import EpisodeKey
from tests.eval.doubles import FakePolicy

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=3, seed=7)


def protocol(**changes) -> SuiteConfig:
    return load(SuiteConfig, "libero_object").model_copy(update=changes)


@given(max_steps=st.integers(1, 40), replan_steps=st.integers(1, 10), success_at=st.integers(1, 60))
def test_an_episode_ends_at_success_or_at_the_limit_and_never_runs_past_either(
    max_steps, replan_steps, success_at
):
    world, policy = FakeWorld(success_at=success_at), FakePolicy()
    limits = protocol(max_steps=max_steps, replan_steps=replan_steps)
    queries = list(rollout(world, policy, KEY, limits))
    steps = min(success_at, max_steps)
    assert world.steps == sum(query.steps for query in queries) == steps
    assert len(queries) == policy.queries == -(-steps // replan_steps)
    assert [query.step for query in queries] == [index * replan_steps for index in range(len(queries))]
    assert [query.success for query in queries] == [False] * (len(queries) - 1) + [success_at <= max_steps]


def test_the_world_and_the_policy_are_told_the_episode():
    world, policy = FakeWorld(success_at=1), FakePolicy()
    list(rollout(world, policy, KEY, protocol(settle_steps=4)))
    assert policy.episodes == [KEY]
    assert world.observe().state[7] == 0.04


def test_every_query_is_timed_on_both_sides():
    queries = list(rollout(FakeWorld(success_at=1), FakePolicy(), KEY, protocol()))
    assert set(queries[0].timings_ms) == {"action", "frame", "observe", "advance"}
    assert all(milliseconds >= 0 for milliseconds in queries[0].timings_ms.values())


@pytest.mark.parametrize(
    "actions",
    [
        np.full((10, 7), np.nan),
        np.full((10, 7), -np.inf),
        np.zeros((10, 6)),
        np.zeros((4, 7)),
        np.zeros((0, 7)),
    ],
)
def test_actions_that_are_not_finite_or_have_a_wrong_shape_never_reach_the_simulator(actions):
    world = FakeWorld()
    with pytest.raises(ActionError):
        list(rollout(world, FakePolicy(actions=actions), KEY, protocol()))
    assert world.steps == 0


@pytest.mark.parametrize("actions", [np.zeros(7), np.zeros((10, 7, 1)), [[0.0] * 7], "no actions"])
def test_what_is_no_table_of_actions_is_refused(actions):
    with pytest.raises(ValueError, match=r"shape|could not convert"):
        executable(actions, least=5)


def test_a_nan_is_refused_even_beyond_what_would_be_executed():
    actions = np.zeros((10, 7))
    actions[9, 6] = np.nan
    with pytest.raises(ActionError, match="action 9 holds nan in dimension 6"):
        executable(actions, least=5)
