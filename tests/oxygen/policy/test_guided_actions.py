"""Chunks that are guided towards the one under way: when they are, and that nobody else notices."""

import dataclasses

import numpy as np
import pytest

from configs.errors import UsageError
from configs.latency import ActionPrefix
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.scheduler import Mode
from tests.oxygen.conftest import small_policy

UNDER_WAY = {"action_prefix": ActionPrefix(first=2, delay=3)}


@pytest.fixture(scope="module")
def guidable():
    """For two independent robots."""
    engine = EngineConfig(slots=24, rows=24, robots=2, independent=True, guided=True)
    return small_policy(engine)


def second_chunks(policy, first, second, mode=Mode.ACTIONS):
    """What robots are answered in their second query, and its stages."""
    policy = policy.with_engine(dataclasses.replace(policy.engine, mode=mode))
    for robot in range(2):
        policy.reset(robot, 7 + robot)
    policy.act(first)
    policy.complete()
    chunks = policy.act(second)
    return chunks, {robot: reply.timings_ms for robot, reply in policy.complete().items()}


def test_a_guided_chunk_agrees_with_what_will_have_been_executed(guidable, observe):
    first, second = {0: observe(0)}, {0: observe(1)}
    guidable.reset(0, 7)
    before = guidable.act(first)[0]
    guidable.complete()
    (free,) = second_chunks(guidable, first, second)[0].values()
    (pulled,) = second_chunks(guidable, first, {0: second[0] | UNDER_WAY})[0].values()

    def distance(chunk):
        return np.abs(chunk[:3] - before[2:5]).mean()

    assert distance(pulled) < 0.2 * distance(free)


def test_neither_company_nor_mode_changes_a_bit(guidable, observe):
    first, second = {0: observe(0), 1: observe(1)}, {0: observe(2), 1: observe(3)}
    guided = {robot: one | UNDER_WAY for robot, one in second.items()}
    free, _ = second_chunks(guidable, first, second)
    both, _ = second_chunks(guidable, first, guided)
    mixed, stages = second_chunks(guidable, first, {0: guided[0], 1: second[1]})
    alone, _ = second_chunks(guidable, first, {0: guided[0]})
    assert np.array_equal(mixed[0], both[0])
    assert np.array_equal(alone[0], both[0])
    assert np.array_equal(mixed[1], free[1])
    assert not np.array_equal(both[0], free[0])
    assert ["guided_denoise" in stages[robot] for robot in range(2)] == [True, False]
    assert ["denoise" in stages[robot] for robot in range(2)] == [False, True]
    for mode in (Mode.UNIFIED, Mode.INTERLEAVED, Mode.SHARED, Mode.ISOLATED, Mode.PARALLEL):
        again, _ = second_chunks(guidable, first, guided, mode)
        assert all(np.array_equal(again[robot], both[robot]) for robot in range(2)), mode
    assert guidable.compiles_after_warm_up == 0


def test_a_query_without_an_old_chunk_is_answered_as_without_guidance(guidable, observe):
    """That is why overlap `rtc` equals `skip` where nothing overlaps."""
    engine = dataclasses.replace(guidable.engine, guided=False)
    plain = small_policy(engine)
    first, second = {0: observe(0), 1: observe(1)}, {0: observe(2), 1: observe(3)}
    expected, _ = second_chunks(plain, first, second)
    found, _ = second_chunks(guidable, first, second)
    assert all(np.array_equal(found[robot], expected[robot]) for robot in range(2))


def test_what_is_not_under_way_is_refused(guidable, policy, observe):
    policy.reset(7)
    with pytest.raises(UsageError, match="serve the policy with `guided=True`"):
        policy.act(observe(0) | UNDER_WAY)
    with pytest.raises(UsageError, match="guided is True; the programs were compiled with False"):
        policy.with_engine(dataclasses.replace(policy.engine, guided=True))
    guidable.reset(0, 7)
    with pytest.raises(UsageError, match="the last chunk of the episode has 0 actions; leave it out"):
        guidable.act({0: observe(0) | UNDER_WAY})
    guidable.act({0: observe(0)})
    guidable.complete()
    with pytest.raises(UsageError, match=r"first=10, .* has 10 actions"):
        guidable.act({0: observe(0) | {"action_prefix": ActionPrefix(first=10, delay=1)}})
    with pytest.raises(UsageError, match="`delay` at least 1"):
        ActionPrefix(first=0, delay=0)
