"""Independent robots in one batch: each is told, query by query, what it is told without the others."""

import dataclasses

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import Burst, EveryN, Poisson
from oxygen.serving.scheduler import FixedTokens, Mode
from tests.oxygen.conftest import small_policy
from tests.oxygen.serving.scenarios import ROBOTS, TASKS, Frame, frames, seed_of

MODES = (Mode.UNIFIED, Mode.INTERLEAVED, Mode.SHARED, Mode.ISOLATED)
arrivals = st.one_of(
    st.builds(EveryN, st.integers(1, 3)),
    st.builds(Burst, n=st.integers(1, 2), every=st.integers(1, 4)),
    st.builds(Poisson, rate=st.floats(0.2, 1.0), seed=st.integers(0, 99)),
)


@pytest.fixture(scope="module")
def policy():
    engine = EngineConfig(slots=24, rows=24, robots=ROBOTS, independent=True)
    return small_policy(engine, tasks=TASKS)


@given(frames, arrivals, st.sampled_from(MODES), st.integers(1, 12))
@example(
    [
        Frame(present=frozenset(robots), ending=frozenset(), early=False)
        for robots in ([0, 1], [0], [0], [0], [0, 1])
    ],
    EveryN(1),
    Mode.INTERLEAVED,
    1,
).via("a robot that sat out lost its texts' head start")
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_reply_is_the_same_in_any_company(policy, observe, frames, narration, mode, tokens):
    tasks = (dataclasses.replace(TASKS[0], arrivals=narration), TASKS[1])
    engine = dataclasses.replace(policy.engine, mode=mode, budget=FixedTokens(tokens))
    together = replies(policy.with_engine(engine, tasks=tasks), frames, observe, range(ROBOTS))
    for robot in range(ROBOTS):
        alone = replies(policy.with_engine(engine, tasks=tasks), frames, observe, [robot])
        assert alone[robot] == together[robot]


@pytest.mark.parametrize(
    "mode", [mode if mode == "unified" else pytest.param(mode, marks=pytest.mark.slow) for mode in MODES]
)
def test_the_work_of_a_reply_is_that_of_a_policy_for_one_robot(policy, observe, mode):
    """With texts that end at their limits alone, which the last bits of a batch size do not change."""
    tasks = [dataclasses.replace(task, stop="\n") for task in TASKS]
    single = small_policy(EngineConfig(mode=mode, slots=8, rows=8), tasks=tasks)
    several = policy.with_engine(dataclasses.replace(policy.engine, mode=mode), tasks=tasks)
    for number in range(6):
        single.act({0: observe(number)})
        several.act({0: observe(90 + number), 2: observe(number)} | ({} if number % 2 else {1: observe(80)}))
        alone, own = single.complete()[0], several.complete()[2]
        assert alone.work == own.work
        assert alone.tokens == own.tokens
        assert [(text.job, text.job_steps) for text in alone.finished] == [
            (text.job, text.job_steps) for text in own.finished
        ]


def test_rows_are_divided_evenly():
    with pytest.raises(UsageError, match="rows is 8 for 3 independent robots; give a multiple"):
        EngineConfig(slots=9, rows=8, robots=3, independent=True)


def replies(policy, frames, observe, robots):
    """Robot to all that it was told, its times apart. The others of `robots` have the same queries."""
    told = {robot: [] for robot in robots}
    episodes = dict.fromkeys(robots, 0)
    for robot in robots:
        policy.reset(robot, seed_of(robot, 0))
    for number, frame in enumerate(frames):
        seen = {robot: observe(10 * number + robot) for robot in frame.present & told.keys()}
        if seen:
            actions, completed = policy.act(seen), policy.complete()
            for robot in seen:
                told[robot].append((actions[robot].tobytes(), timeless(completed[robot])))
        for robot in frame.ending & told.keys():
            end = policy.finish(robot)
            told[robot].append((end.cancelled, end.requests, end.tokens))
            episodes[robot] += 1
            policy.reset(robot, seed_of(robot, episodes[robot]))
    return told


def timeless(reply):
    texts = [dataclasses.replace(text, latency_ms=0.0, after_ms=0.0, times=None) for text in reply.finished]
    return reply.requested, texts, reply.dropped, reply.tokens, reply.work
