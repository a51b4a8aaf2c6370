"""The loop: how many queries, how many steps, and what never reaches a simulator."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.interface import Hold, Interface, Motion
from configs.schema import RunConfig
from eval.policies.python import WithTimeout
from eval.rollout.clock import find_clock
from eval.rollout.rollout import ActionError, rollout
from sim_envs.fake import FakeWorld
from sim_envs.world import EpisodeKey
from tests.eval.doubles import FakePolicy, libero_object

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=3, seed=7)


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


class NotingPolicy(FakePolicy):
    """Notes what is asked of it, in the list of its world."""

    def __init__(self, world: NotingWorld) -> None:
        super().__init__()
        self.asked = world.asked

    def reset(self, key):
        self.asked.append("reset")
        super().reset(key)

    def act(self, observation):
        self.asked.append("act")
        return super().act(observation)

    def complete(self):
        self.asked.append("complete")
        return super().complete()


def test_measured_charges_the_time_that_a_policy_reports():
    policy = FakePolicy()
    policy.charged_ms = 500.0
    clock = find_clock(RunConfig(clock="measured"), [KEY])
    first, *_ = rollout(FakeWorld(success_at=8), WithTimeout(policy, 60.0), KEY, libero_object(), clock=clock)
    assert first.latency.actions_ms == 500.0


def test_a_query_observes_acts_executes_replan_steps_of_the_chunk_and_completes():
    noting = NotingWorld(success_at=8)
    list(rollout(noting, NotingPolicy(noting), KEY, libero_object()))
    assert noting.asked == ["reset", *["observe", "act", "advance 5", "complete"] * 2]
    actions = np.linspace(0, 0.9, 70).reshape(10, 7)
    world = FakeWorld()
    limits = libero_object(max_steps=7, replan_steps=5, settle_steps=0)
    queries = list(rollout(world, FakePolicy(actions=actions), KEY, limits))
    assert [query.steps for query in queries] == [5, 2]
    assert all(np.array_equal(query.actions, actions) for query in queries)
    np.testing.assert_allclose(world.observe().state[:7], actions[:5].sum(axis=0) + actions[:2].sum(axis=0))


@given(max_steps=st.integers(1, 40), replan_steps=st.integers(1, 10), success_at=st.integers(1, 60))
def test_an_episode_ends_at_success_or_at_the_limit(max_steps, replan_steps, success_at):
    world, policy = FakeWorld(success_at=success_at), FakePolicy()
    limits = libero_object(max_steps=max_steps, replan_steps=replan_steps)
    queries = list(rollout(world, policy, KEY, limits))
    steps = min(success_at, max_steps)
    assert world.steps == sum(query.steps for query in queries) == steps
    assert len(queries) == policy.queries == -(-steps // replan_steps)
    assert [query.step for query in queries] == [index * replan_steps for index in range(len(queries))]
    assert [query.success for query in queries] == [False] * (len(queries) - 1) + [success_at <= max_steps]


def test_invalid_actions_never_reach_the_simulator():
    for actions in (np.full((10, 7), -np.inf), np.zeros((10, 6)), np.zeros(7), np.zeros((4, 7))):
        world = FakeWorld()
        with pytest.raises(ActionError):
            list(rollout(world, FakePolicy(actions=actions), KEY, libero_object()))
        assert world.steps == 0


def timed(latency: str, *, waiting: str = "continue", world: FakeWorld | None = None, **limits):
    """The queries of an episode on a clock with a fixed latency; a control step is 50 ms."""
    return list(
        rollout(
            world or FakeWorld(),
            FakePolicy(actions=np.arange(70.0).reshape(10, 7)),
            KEY,
            libero_object(**{"max_steps": 20, "replan_steps": 5, **limits}),
            clock=find_clock(RunConfig(clock=f"fixed:{latency}"), [KEY]),
            while_waiting=waiting,
            picture_steps=4,
        )
    )


def test_an_episode_solved_while_the_policy_computes_ends_there():
    queries = timed("100,400", world=FakeWorld(success_at=9))
    assert [query.steps for query in queries] == [8, 1]
    assert queries[-1].success
    assert (queries[-1].actions_step, queries[-1].free_step) == (10, 16)
    assert queries[-1].continued == 1


def test_a_text_is_delivered_at_the_control_step_in_which_its_last_token_is_known():
    queries = timed("100,400")
    assert [query.step for query in queries] == [0, 8, 16]
    (text,) = queries[1].delivered
    assert text.step == 8 + 8
    assert queries[1].truth_on_delivery(text) == FakeWorld(steps=16).truth()
    assert queries[1].truth == FakeWorld(steps=8).truth() != queries[1].truth_on_delivery(text)


@given(act=st.integers(0, 9), busy=st.integers(0, 9), success_at=st.integers(1, 30), hold=st.booleans())
def test_records_count_the_executed_steps(act, busy, success_at, hold):
    world = FakeWorld(success_at=success_at)
    latency = f"{50 * act},{50 * (act + busy)}"
    queries = timed(latency, world=world, waiting="hold" if hold else "continue")
    assert sum(query.steps for query in queries) == world.steps == min(success_at, 20)
    for query in queries:
        sources = [(span.chunk, span.steps) for span in query.spans]
        assert sum(steps for _, steps in sources) == query.steps
        assert sum(steps for chunk, steps in sources if chunk is None) == query.held
        assert sum(steps for chunk, steps in sources if chunk == query.index - 1) == query.continued


def held_at_its_state(interface: Interface) -> Interface:
    """The interface with the arm under position control, held where it is."""
    arm, gripper = interface.action.channels[:-1], interface.action.channels[-1]
    held = [
        dataclasses.replace(part, motion=Motion.ABSOLUTE, hold=Hold.STATE, state=part.name) for part in arm
    ]
    action = dataclasses.replace(interface.action, channels=(*held, gripper))
    return dataclasses.replace(interface, action=action)


def test_a_hold_action_uses_the_state_where_holding_began():
    class Obeying(FakeWorld):
        """Is where it was told to be."""

        def advance(self, actions):
            told.extend(actions[:, 0].tolist())
            self._state[:7] = 0
            return super().advance(actions)

    told: list[float] = []
    suite = libero_object(max_steps=12, replan_steps=2, settle_steps=0)
    suite.interface = held_at_its_state(suite.interface)
    chunk = np.tile(np.arange(1.0, 5.0)[:, None], (1, 7))
    clock = find_clock(RunConfig(clock="fixed:300"), [KEY])
    list(rollout(Obeying(), FakePolicy(actions=chunk), KEY, suite, clock=clock))
    # | - - - - - - | a0 a1 a2 a3 - -
    assert told == [0] * 6 + [1, 2, 3, 4, 4, 4]


@pytest.mark.parametrize(("clock", "waiting"), [("paused", "continue"), ("fixed:120,300", "hold")])
def test_queries_record_executed_actions_and_the_end_effectors_path(clock, waiting):
    world, suite = FakeWorld(success_at=13), libero_object(settle_steps=2)
    policy = FakePolicy(actions=np.linspace(-0.1, 0.1, 70).reshape(10, 7))
    how = {"clock": find_clock(RunConfig(clock=clock), [KEY]), "while_waiting": waiting}
    queries = list(rollout(world, policy, KEY, suite, **how))
    steps = np.concatenate([np.diff(query.end_effector, axis=0) for query in queries])
    executed = np.concatenate([query.executed for query in queries])
    assert len(executed) == 13
    np.testing.assert_allclose(steps, executed[:, :3], atol=1e-12)
    assert [len(query.truths) for query in queries] == [
        query.steps + 1 if clock != "paused" else 1 for query in queries
    ]
