"""Several robots at once: what must be exact whatever comes and goes, and what each robot is told."""

import dataclasses

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contracts.errors import UsageError
from contracts.mode import Mode
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.robots import tokenizer
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import Arrivals, Burst, EveryN, LanguageTask, Poisson, RandomLength
from oxygen.serving.requests import Sampling
from oxygen.serving.scheduler import Budget, Deadline, FixedTokens
from tests.oxygen.conftest import SMALL, answered, small_policy

ROBOTS = 3
QUERIES = 7
TASKS = (
    LanguageTask(
        name="narration",
        prompt="Narrate: ",
        max_tokens=7,
        priority=4,
        sampling=Sampling(temperature=1.5, top_k=50),
    ),
    LanguageTask(name="memory", prompt="Remember: it", arrivals=EveryN(3), max_tokens=11),
)

arrivals = st.one_of(
    st.builds(EveryN, st.integers(1, 3)),
    st.builds(Burst, n=st.integers(1, 3), every=st.integers(1, 4)),
    st.builds(
        RandomLength,
        arrivals=st.builds(Poisson, rate=st.floats(0.2, 1.5), seed=st.integers(0, 99)),
        min_tokens=st.integers(1, 3),
        max_tokens=st.integers(3, 7),
        seed=st.just(0),
    ),
)


@dataclasses.dataclass(frozen=True)
class Frame:
    """Who takes part, whose episode ends, and whether it ends before the query is completed."""

    present: frozenset[int]
    ending: frozenset[int]
    early: bool


some = st.frozensets(st.integers(0, ROBOTS - 1))
frames = st.lists(
    st.builds(Frame, present=some.filter(bool), ending=some | st.just(frozenset()), early=st.booleans()),
    min_size=1,
    max_size=10,
)
budgets = st.builds(FixedTokens, st.integers(1, 12)) | st.builds(Deadline, st.floats(1, 500))


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What comes at a policy, and how it is served."""

    frames: list[Frame]
    narration: Arrivals
    memory: Arrivals
    slots: int
    rows: int
    budget: Budget

    @property
    def tasks(self):
        when = (self.narration, self.memory)
        return tuple(dataclasses.replace(task, arrivals=due) for task, due in zip(TASKS, when, strict=True))


scenarios = st.builds(
    Scenario,
    frames=frames,
    narration=arrivals,
    memory=arrivals,
    slots=st.integers(2, 10),
    rows=st.integers(1, 10),
    budget=budgets,
)


class Log:
    """What the robots were given, by robot, episode and query; texts by robot, episode and request."""

    def __init__(self, policy):
        self._policy = policy
        self._episodes = [0] * ROBOTS
        self.actions, self.texts, self.requested, self.ends = {}, {}, [], []
        self.told = {robot: [] for robot in range(ROBOTS)}  # everything, its times apart
        for robot in range(ROBOTS):
            policy.reset(robot, seed_of(robot, 0))

    def note_actions(self, robot, actions):
        name = (robot, self._episodes[robot])
        number = len([key for key in self.actions if key[:2] == name])
        self.actions[(*name, number)] = actions.tobytes()
        self.told[robot].append(actions.tobytes())

    def note(self, robot, reply):
        if reply is not None:
            self.told[robot].append(timeless(reply))
            self.requested += self._names(robot, reply.requested)
            self.ends += self._names(robot, reply.dropped)
            self._note_texts(robot, reply.finished)

    def end(self, robot):
        end = self._policy.finish(robot)
        self.told[robot].append((end.cancelled, end.requests, end.tokens))
        self.note(robot, end.reply)
        self._note_texts(robot, end.finished)
        self.ends += self._names(robot, end.requests) + self._names(robot, end.dropped)
        self._episodes[robot] += 1
        self._policy.reset(robot, seed_of(robot, self._episodes[robot]))

    def _note_texts(self, robot, texts):
        self.ends += self._names(robot, texts)
        self.texts |= dict(zip(self._names(robot, texts), map(told, texts), strict=True))

    def _names(self, robot, texts):
        return [(robot, self._episodes[robot], text.request_id) for text in texts]


def told(text):
    return text.task, text.requested_query, text.text, text.tokens, text.reason


def timeless(reply):
    texts = [dataclasses.replace(text, latency_ms=0.0, after_ms=0.0, times=None) for text in reply.finished]
    return reply.requested, texts, reply.dropped, reply.tokens, reply.work


def play(policy, frames, observe, robots=frozenset(range(ROBOTS))):
    """All frames of some robots, with episodes that end and begin anew; the last ones are ended, too."""
    log = Log(policy)
    for number, frame in enumerate(frames):
        seen = {robot: observe(10 * number + robot) for robot in frame.present & robots}
        for robot, actions in policy.act(seen).items() if seen else ():
            log.note_actions(robot, actions)
        for robot in frame.ending & robots if frame.early else ():
            log.end(robot)
        for robot, reply in policy.complete().items():
            log.note(robot, reply)
        for robot in frame.ending & robots if not frame.early else ():
            log.end(robot)
    for robot in robots:
        log.end(robot)
    return log


def seed_of(robot, episode):
    return 2**40 * robot + 7 * episode


few_examples = settings(
    max_examples=settings().max_examples // 8, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module", params=["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def policy(request):
    config = dataclasses.replace(SMALL, dtype=request.param)
    return small_policy(EngineConfig(slots=10, rows=10, robots=ROBOTS), config=config, tasks=TASKS)


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
        with pytest.MonkeyPatch.context() as patch:
            if mode is Mode.PARALLEL:
                patch.setattr(VectorPolicy, "_text_decoder", lambda self: second_process)
            other = served(policy, mode, scenario, rows=scenario.rows)
        log = play(other, scenario.frames, observe)
        assert log.actions == without
        texts[mode] = log.texts
    assert texts[Mode.PARALLEL] == texts[Mode.ISOLATED], "the same programs, in another process"


@pytest.mark.slow
def test_what_a_robot_does_and_says_does_not_depend_on_how_long_the_others_prompts_are(observe):
    """Alone it would fit a shorter bucket, and a prefix of another length has other last bits."""
    config = dataclasses.replace(SMALL, prompt_buckets=(24, 40))
    engine = EngineConfig(slots=4, rows=4, robots=2, budget=FixedTokens(7))
    policy = small_policy(engine, config=config, tasks=TASKS)
    brief, wordy = observe(1), {**observe(1), "prompt": "put the mug " * 9}
    lengths = [
        len(policy.transform.inputs(each, tokenizer.tiny(), config).prompt[0]) for each in (brief, wordy)
    ]
    assert lengths[0] <= 24 < lengths[1] <= 40
    told_of = []
    for neighbour in ((), (brief,), (wordy,)):
        policy.reset(0, 5)
        actions, reply = answered(policy, observe(0), *neighbour)
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
    unhurried = dataclasses.replace(scenario, slots=10, budget=FixedTokens(12))
    lone = served(policy, Mode.UNIFIED, unhurried)
    for robot in {robot for robot, _, _ in texts}:
        alone = play(lone, scenario.frames, observe, frozenset({robot})).texts
        for name in [name for name in texts if name[0] == robot]:
            assert texts[name] == alone[name]


@given(scenarios)
@example(
    Scenario(
        frames=[
            Frame(present=frozenset({0, 1}), ending=frozenset(), early=True),
            Frame(present=frozenset({1}), ending=frozenset(), early=True),
        ],
        narration=EveryN(n=1),
        memory=Burst(n=2, every=1),
        slots=3,
        rows=1,
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
        replies = [answered(policy, observe(number))[1] for number in range(QUERIES)]
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
        _, reply = answered(served, observe(0))
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


def test_a_query_is_for_some_of_the_robots(policy, observe):
    for asked in ({}, {ROBOTS: observe(0)}):
        with pytest.raises(UsageError, match="give some of 3, numbered from 0"):
            policy.act(asked)


MODES = (Mode.UNIFIED, Mode.INTERLEAVED, Mode.SHARED, Mode.ISOLATED)
few_arrivals = st.one_of(
    st.builds(EveryN, st.integers(1, 3)),
    st.builds(Burst, n=st.integers(1, 2), every=st.integers(1, 4)),
    st.builds(Poisson, rate=st.floats(0.2, 1.0), seed=st.integers(0, 99)),
)


@given(frames, few_arrivals, st.sampled_from(MODES), st.integers(1, 12))
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
    together = play(policy.with_engine(engine, tasks=tasks), frames, observe)
    for robot in range(ROBOTS):
        alone = play(policy.with_engine(engine, tasks=tasks), frames, observe, {robot})
        assert alone.told[robot] == together.told[robot]


@pytest.mark.parametrize(
    "mode", [mode if mode == "unified" else pytest.param(mode, marks=pytest.mark.slow) for mode in MODES]
)
def test_the_work_of_a_reply_is_that_of_a_policy_for_one_robot(policy, one_robot, observe, mode):
    """And the work that it did. With texts that end at their limits, which no last bit changes."""
    tasks = [dataclasses.replace(task, stop="\n", sampling=Sampling()) for task in TASKS]
    engine = dataclasses.replace(one_robot.engine, mode=mode)
    single = one_robot.with_engine(engine, tasks=tasks)
    several = policy.with_engine(dataclasses.replace(engine, robots=ROBOTS), tasks=tasks)
    for number in range(6):
        single.act(observe(number))
        several.act({0: observe(90 + number), 2: observe(number)} | ({} if number % 2 else {1: observe(80)}))
        alone, own = single.complete(), several.complete()[2]
        assert single.work == alone.work == own.work
        assert alone.tokens == own.tokens
        jobs, own_jobs = ([(t.job, t.job_steps) for t in reply.finished] for reply in (alone, own))
        assert jobs == own_jobs
