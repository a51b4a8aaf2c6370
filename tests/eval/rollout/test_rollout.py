"""The loop: how many queries, how many steps, and what never reaches a simulator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.rollout.rollout import ActionError, executable, rollout
from sim_envs.fake import FakeWorld
from sim_envs.world import EpisodeKey
from tests.eval.doubles import FakePolicy, libero_object

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=3, seed=7)


class NotingPolicy(FakePolicy):
    """Notes what is asked of it, in the list of its world."""

    def __init__(self, world: "NotingWorld") -> None:
        super().__init__()
        self.asked = world.asked

    def reset(self, key):
        self.asked.append("reset")
        super().reset(key)

    def act(self, observation):
        self.asked.append("act")
        return super().act(observation)

    def settle(self):
        self.asked.append("settle")
        return super().settle()


class NotingWorld(FakeWorld):
    """Notes what is asked of it."""

    def __init__(self, success_at: int) -> None:
        super().__init__(success_at=success_at)
        self.asked: list[str] = []

    def observe(self):
        self.asked.append("observe")
        return super().observe()

    def advance(self, actions):
        self.asked.append(f"advance {len(actions)}")
        return super().advance(actions)


def test_a_query_is_observed_and_acted_on_once_and_settled_after_the_physics():
    world = NotingWorld(success_at=8)
    list(rollout(world, NotingPolicy(world), KEY, libero_object()))
    assert world.asked == ["reset", *["observe", "act", "advance 5", "settle"] * 2]


def test_a_query_has_all_actions_and_the_world_runs_as_many_as_are_due():
    actions = np.linspace(0, 0.9, 70).reshape(10, 7)
    world = FakeWorld()
    limits = libero_object(max_steps=7, replan_steps=5, settle_steps=0)
    queries = list(rollout(world, FakePolicy(actions=actions), KEY, limits))
    assert [query.steps for query in queries] == [5, 2]
    assert all(np.array_equal(query.actions, actions) for query in queries)
    np.testing.assert_allclose(world.observe().state[:7], actions[:5].sum(axis=0) + actions[:2].sum(axis=0))


@given(max_steps=st.integers(1, 40), replan_steps=st.integers(1, 10), success_at=st.integers(1, 60))
def test_an_episode_ends_at_success_or_at_the_limit_and_never_runs_past_either(
    max_steps, replan_steps, success_at
):
    world, policy = FakeWorld(success_at=success_at), FakePolicy()
    limits = libero_object(max_steps=max_steps, replan_steps=replan_steps)
    queries = list(rollout(world, policy, KEY, limits))
    steps = min(success_at, max_steps)
    assert world.steps == sum(query.steps for query in queries) == steps
    assert len(queries) == policy.queries == -(-steps // replan_steps)
    assert [query.step for query in queries] == [index * replan_steps for index in range(len(queries))]
    assert [query.success for query in queries] == [False] * (len(queries) - 1) + [success_at <= max_steps]


def test_the_world_and_the_policy_are_told_the_episode():
    world, policy = FakeWorld(success_at=1), FakePolicy()
    list(rollout(world, policy, KEY, libero_object(settle_steps=4)))
    assert policy.episodes == [KEY]
    assert world.observe().state[7] == 0.04


def test_every_query_is_timed_on_both_sides():
    queries = list(rollout(FakeWorld(success_at=1), FakePolicy(), KEY, libero_object()))
    assert set(queries[0].timings_ms) == {"action", "frame", "observe", "advance"}
    assert all(milliseconds >= 0 for milliseconds in queries[0].timings_ms.values())


@pytest.mark.parametrize(
    "actions",
    [
        np.full((10, 7), np.nan),
        np.full((10, 7), -np.inf),
        np.zeros((10, 6)),
        np.zeros(7),
        np.zeros((4, 7)),
        np.zeros((0, 7)),
        "no actions",
        None,
    ],
)
def test_actions_that_are_not_finite_or_have_a_wrong_shape_never_reach_the_simulator(actions):
    world = FakeWorld()
    with pytest.raises(ActionError):
        list(rollout(world, FakePolicy(actions=actions), KEY, libero_object()))
    assert world.steps == 0


@pytest.mark.parametrize("actions", [np.zeros(7), np.zeros((10, 7, 1)), [[0.0] * 7], "no actions"])
def test_what_is_no_table_of_actions_is_refused(actions):
    with pytest.raises(ValueError, match=r"shape|could not convert"):
        executable(actions, least=5, width=7)


def test_a_nan_is_refused_even_beyond_what_would_be_executed():
    actions = np.zeros((10, 7))
    actions[9, 6] = np.nan
    with pytest.raises(ActionError, match="action 9 holds nan in dimension 6"):
        executable(actions, least=5, width=7)
