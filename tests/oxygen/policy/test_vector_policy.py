"""Several robots at once: what must be exact whatever comes and goes, and what each robot is told."""

import contextlib
import dataclasses

import pytest
from hypothesis import HealthCheck, example, given, settings

from configs.errors import UsageError
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.robots import tokenizer
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import Burst, EveryN
from oxygen.serving.scheduler import FixedTokens, Mode
from tests.oxygen.conftest import SMALL, small_policy
from tests.oxygen.serving.scenarios import (
    QUERIES,
    ROBOTS,
    TASKS,
    Frame,
    Scenario,
    play,
    scenarios,
    seed_of,
    told,
)

few_examples = settings(
    max_examples=settings().max_examples // 4, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module", params=["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def policy(request):
    config = dataclasses.replace(SMALL, dtype=request.param)
    engine = EngineConfig(slots=16, rows=12, robots=ROBOTS)
    return small_policy(engine, config=config, tasks=TASKS)


def served(policy, mode, scenario=None, **engine):
    """Served in a mode, as a scenario wants it but for its rows, which are part of what a text reads like."""
    tasks = None
    if scenario is not None:
        tasks = scenario.tasks
        engine = {"slots": scenario.slots, "budget": scenario.budget, **engine}
    return policy.with_engine(dataclasses.replace(policy.engine, mode=mode, **engine), tasks=tasks)


@pytest.fixture(scope="module")
def second_process(policy):
    """The second process of mode `parallel`, one for all scenarios: it keeps nothing of an episode."""
    decoder = served(policy, Mode.PARALLEL)._engine._decoder
    yield decoder
    decoder.close()


@given(scenarios)
@few_examples
def test_actions_are_equal_bit_for_bit_whatever_is_said_beside_them(
    policy, second_process, observe, scenario
):
    without = play(served(policy, Mode.ACTIONS), scenario.frames, observe).actions
    texts = {}
    for mode in (Mode.UNIFIED, Mode.INTERLEAVED, Mode.SHARED, Mode.ISOLATED, Mode.PARALLEL):
        with served_by(second_process if mode is Mode.PARALLEL else None):
            other = served(policy, mode, scenario, rows=scenario.rows)
        log = play(other, scenario.frames, observe)
        assert log.actions == without
        texts[mode] = log.texts
    assert texts[Mode.PARALLEL] == texts[Mode.ISOLATED], "the same programs, in another process"


@contextlib.contextmanager
def served_by(decoder):
    """Policies made herein have their texts from this decoder, unless it is None."""
    with pytest.MonkeyPatch.context() as patch:
        if decoder is not None:
            patch.setattr(VectorPolicy, "_text_decoder", lambda self: decoder)
        yield


def answered(policy, observations):
    """The first robot's actions and reply."""
    return policy.act(observations)[0], policy.complete()[0]


@pytest.mark.slow
def test_what_a_robot_does_and_says_does_not_depend_on_how_long_the_others_prompts_are(observe):
    """Alone it would fit a shorter bucket, and a prefix of another length has other last bits."""
    config = dataclasses.replace(SMALL, prompt_buckets=(24, 40))
    engine = EngineConfig(slots=8, rows=8, robots=2, budget=FixedTokens(7))
    policy = small_policy(engine, config=config, tasks=TASKS)
    brief, wordy = observe(1), {**observe(1), "prompt": "put the mug " * 9}
    lengths = [
        len(policy.transform.inputs(each, tokenizer.tiny(), config).prompt[0]) for each in (brief, wordy)
    ]
    assert lengths[0] <= 24 < lengths[1] <= 40
    told_of = []
    for neighbour in ({}, {1: brief}, {1: wordy}):
        policy.reset(0, 5)
        actions, reply = answered(policy, {0: observe(0), **neighbour})
        told_of.append((actions.tobytes(), list(map(told, reply.finished))))
        policy.finish(0)
        policy.finish(1)
    assert told_of[0][1]
    assert told_of[0] == told_of[1] == told_of[2]


@given(scenarios)
@few_examples
def test_a_text_is_the_same_alone_and_in_any_company_slot_and_step(policy, observe, scenario):
    """Alone: the other robots sit out, and a step decodes a text to its end before the next is requested."""
    texts = play(served(policy, Mode.UNIFIED, scenario), scenario.frames, observe).texts
    unhurried = dataclasses.replace(scenario, slots=16, budget=FixedTokens(12))
    lone = served(policy, Mode.UNIFIED, unhurried)
    for robot in {robot for robot, _, _ in texts}:
        alone = play_alone(lone, scenario.frames, observe, robot)
        for name in [name for name in texts if name[0] == robot]:
            assert texts[name] == alone[name]


def play_alone(policy, frames, observe, robot):
    """The texts of one robot's frames; those it sits out are not run at all."""
    texts, episode = {}, 0
    policy.reset(robot, seed_of(robot, 0))
    for number, frame in enumerate(frames):
        if robot in frame.present:
            policy.act({robot: observe(10 * number + robot)})
            for text in policy.complete()[robot].finished:
                texts[robot, episode, text.request_id] = told(text)
        if robot in frame.ending:
            policy.finish(robot)
            episode += 1
            policy.reset(robot, seed_of(robot, episode))
    return texts


@given(scenarios)
@example(
    Scenario(
        frames=[
            Frame(present=frozenset({0, 1}), ending=frozenset(), early=True),
            Frame(present=frozenset({1}), ending=frozenset(), early=True),
        ],
        narration=EveryN(n=1),
        memory=Burst(n=2, every=1),
        slots=7,
        rows=2,
        budget=FixedTokens(1),
    )
).via("a request dropped while its robot sat out was reported to nobody")
@few_examples
def test_every_request_of_every_robot_is_accounted_for_exactly_once(policy, observe, scenario):
    log = play(served(policy, Mode.UNIFIED, scenario, rows=scenario.rows), scenario.frames, observe)
    assert sorted(log.ends) == sorted(log.requested)
    assert len(set(log.requested)) == len(log.requested)


def test_sampled_texts_differ_between_episodes_and_greedy_ones_do_not(policy, observe):
    def of_episode(seed):
        policy.reset(0, seed)
        replies = [answered(policy, {0: observe(number)})[1] for number in range(QUERIES)]
        policy.finish(0)
        return {(text.task, text.requested_query): text.text for reply in replies for text in reply.finished}

    once, again, other = of_episode(1), of_episode(1), of_episode(2)
    assert once == again
    same = {key: once[key] == other[key] for key in once.keys() & other.keys()}
    assert all(equal for (task, _), equal in same.items() if task == "memory")
    assert not all(equal for (task, _), equal in same.items() if task == "narration")


def test_sampled_texts_requested_together_differ_and_the_first_is_that_of_a_request_alone(policy, observe):
    def narrated(arrivals):
        narration = dataclasses.replace(TASKS[0], arrivals=arrivals)
        engine = dataclasses.replace(policy.engine, budget=FixedTokens(12))
        served = policy.with_engine(engine, tasks=(narration, TASKS[1]))
        _, reply = answered(served, {0: observe(0)})
        return [text.text for text in reply.finished if text.task == "narration"]

    together = narrated(Burst(n=4, every=9))
    assert len(set(together)) == 4
    assert narrated(EveryN(1)) == together[:1]


def test_a_robots_episode_ends_without_touching_the_others(policy, observe):
    for robot in range(ROBOTS):
        policy.reset(robot, robot)
    policy.act({robot: observe(robot) for robot in range(ROBOTS)})
    end = policy.finish(1)
    assert end.reply is not None
    assert {request.task for request in end.requests} == {"narration", "memory"}
    with pytest.raises(UsageError, match="not complete"):
        policy.act({robot: observe(robot) for robot in range(ROBOTS)})
    assert policy.complete().keys() == {0, 2}


def test_times_of_a_text_are_in_their_order(policy, observe):
    policy.reset(0, 0)
    for number in range(QUERIES):
        _, reply = answered(policy, {0: observe(number)})
        for text in reply.finished:
            assert text.times.requested_s < text.times.first_token_s <= text.times.finished_s
            assert 0 < text.latency_ms <= 1e3 * (text.times.finished_s - text.times.requested_s)
    for robot in range(ROBOTS):
        policy.finish(robot)


def test_a_query_is_for_some_of_the_robots(policy, observe):
    for asked in ({}, {ROBOTS: observe(0)}):
        with pytest.raises(UsageError, match="give some of 3, numbered from 0"):
            policy.act(asked)
