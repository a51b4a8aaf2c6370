"""A policy that says nothing holds nothing for it."""

import pytest

from oxygen.serving.scheduler import Mode
from tests.oxygen.serving.fake_runner import FakeRunner
from tests.oxygen.serving.test_engine import answered, policy_of


class WithoutMemory(FakeRunner):
    """A device that has no room for a pool."""

    def empty(self):
        raise MemoryError


def test_mode_actions_allocates_no_pool(observe):
    policy = policy_of(WithoutMemory(), Mode.ACTIONS)
    for number in range(2):
        (actions,) = policy.act([observe(number)])
        (reply,) = policy.complete()
        assert (actions.shape, reply.tokens) == ((10, 7), 0)
    policy.close()
    with pytest.raises(MemoryError):
        policy_of(WithoutMemory(), Mode.SHARED)


def test_nor_does_a_policy_without_language_tasks_in_any_mode(observe):
    reply = answered(policy_of(WithoutMemory(), Mode.UNIFIED, tasks=()), observe(0))
    assert reply.tokens == 0
