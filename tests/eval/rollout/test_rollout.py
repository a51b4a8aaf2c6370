"""The loop: what a query asks of whom, what is executed when, and how chunks take over from each other."""

import copy
import dataclasses
import functools
import itertools
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.schema import RunConfig
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.interface import Hold, Interface, Motion, Rotation
from contracts.latency import steps_in
from contracts.observation import ActionPrefix
from eval.policies.base import BadAnswerError
from eval.policies.openpi import OpenpiPolicy
from eval.policies.python import WithTimeout
from eval.rollout.pricing import open_pricing
from eval.rollout.rollout import ActionError, Timeline, averaged_channels, blend_chunks, rollout
from oxygen.robots.openpi_keys import ROBOTS
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.libero.tasks import LIBERO_INTERFACE
from sim_envs.world import PhysicsError
from tests.eval.doubles import FakePolicy, libero_object, reply, text_finished

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=0, seed=7)


def noting(asked, thing, *names):
    """The same world or policy, which notes when these methods are called."""

    def noted(name, method, *arguments):
        asked.append(f"{name} {len(*arguments)}" if name == "advance" else name)
        return method(*arguments)

    for name in names:
        setattr(thing, name, functools.partial(noted, name, getattr(thing, name)))
    return thing


def test_measured_charges_the_time_that_a_policy_reports():
    policy = FakePolicy()
    policy.charged_ms = 500.0
    pricing = open_pricing(RunConfig(clock="measured"), [KEY])
    first, *_ = rollout(
        FakeWorld(success_at=8), WithTimeout(policy, 60.0), KEY, libero_object(), pricing=pricing
    )
    assert first.latency.actions_ms == 500.0


def test_a_query_observes_acts_executes_replan_steps_of_the_chunk_and_completes():
    asked: list[str] = []
    world = noting(asked, FakeWorld(success_at=8), "observe", "advance")
    list(rollout(world, noting(asked, FakePolicy(), "reset", "act", "complete"), KEY, libero_object()))
    assert asked == ["reset", *["observe", "act", "advance 5", "complete"] * 2]
    actions = np.linspace(0, 0.9, 70).reshape(10, 7)
    world = FakeWorld()
    limits = libero_object(max_steps=7, replan_steps=5, settle_steps=0)
    queries = list(rollout(world, FakePolicy(actions=actions), KEY, limits))
    assert [query.steps for query in queries] == [5, 2]
    assert all(np.array_equal(query.actions, actions) for query in queries)
    np.testing.assert_allclose(world.observe().state[:7], actions[:5].sum(axis=0) + actions[:2].sum(axis=0))


@given(
    replan_steps=st.integers(1, 6),
    history=st.integers(1, 4),
    clock=st.sampled_from(["paused", "fixed:70", "fixed:40,120", "fixed:10,260"]),
    while_waiting=st.sampled_from(["continue", "hold"]),
    picture_steps=st.sampled_from([None, 3]),
)
def test_a_query_has_what_was_observed_in_the_control_steps_before(
    replan_steps, history, clock, while_waiting, picture_steps
):
    limits = libero_object(max_steps=30, replan_steps=replan_steps, settle_steps=0)
    how = {"pricing": open_pricing(RunConfig(clock=clock), [KEY]), "while_waiting": while_waiting}
    worlds, episodes = (FakeWorld(), FakeWorld()), []
    for world, steps in zip(worlds, (0, history), strict=True):
        policy = FakePolicy(actions=np.full((10, 7), 0.01))
        episodes.append(
            list(rollout(world, policy, KEY, limits, history=steps, picture_steps=picture_steps, **how))
        )
    for without, query in zip(*episodes, strict=True):
        assert (query.step, query.spans) == (without.step, without.spans)
        np.testing.assert_array_equal(query.observation.state, without.observation.state)
        levels = [int(each.images["image"][0, 0, 0]) for each in query.observation.history]
        first = max(0, query.step - history)
        assert [level - 7 for level in levels] == [*range(first, query.step)]  # 7 is the seed
        assert without.observation.history == ()


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


def timed(latency: str, world: FakeWorld | None = None, policy: FakePolicy | None = None, **how):
    """The queries of an episode on a clock with a fixed latency; a control step is 50 ms."""
    world, policy = world or FakeWorld(), policy or FakePolicy(actions=np.arange(70.0).reshape(10, 7))
    suite = libero_object(max_steps=how.pop("max_steps", 20), replan_steps=5)
    pricing = open_pricing(RunConfig(clock=f"fixed:{latency}"), [KEY])
    return list(rollout(world, policy, KEY, suite, pricing=pricing, picture_steps=4, **how))


class Diverging(FakeWorld):
    """The simulator fails; the first action of a policy that takes 100 ms is in control step 3."""

    def advance(self, actions):
        try:
            return super().advance(actions)
        except RuntimeError as error:
            raise PhysicsError(str(error)) from None


@pytest.mark.parametrize(("step", "kind"), [(2, RuntimeError), (3, PhysicsError)])
def test_physics_that_diverge_before_the_policy_acts_are_no_failure_of_it(step, kind):
    with pytest.raises(RuntimeError, match=f"fails at step {step}") as raised:
        timed("100,100", world=Diverging(fails_at=step))
    assert raised.type is kind


def test_an_episode_solved_while_the_policy_computes_ends_there():
    queries = timed("100,400", world=FakeWorld(success_at=9))
    assert [query.steps for query in queries] == [8, 1]
    assert queries[-1].success
    assert (queries[-1].actions_step, queries[-1].free_step) == (10, 16)
    assert queries[-1].continued == 1
    assert (queries[-1].delivered, queries[-1].cancelled) == ([], 1), "its text would be known too late"


def test_a_text_is_delivered_at_the_control_step_in_which_its_last_token_is_known():
    queries = timed("100,400")
    assert [query.step for query in queries] == [0, 8, 16]
    (text,) = queries[1].delivered
    assert text.step == 8 + 8
    assert queries[1].truth_on_delivery(text) == FakeWorld(steps=16).truth()
    assert queries[1].truth == FakeWorld(steps=8).truth() != queries[1].truth_on_delivery(text)
    assert not hasattr(queries[1].observation, "truth"), "no policy sees it"


@pytest.mark.parametrize("query", [-1, 2])
def test_a_text_of_a_query_that_was_not_issued_is_refused(query):
    class Confused(FakePolicy):
        def complete(self):
            return reply(finished=(text_finished(query),) if self._query == 2 else ())

    with pytest.raises(
        BadAnswerError, match=rf"a text of query {query} \(`Text.requested_query`\) in query 1"
    ):
        timed("100,400", policy=Confused())


@given(act=st.integers(0, 9), busy=st.integers(0, 9), success_at=st.integers(1, 30), hold=st.booleans())
def test_records_count_the_executed_steps(act, busy, success_at, hold):
    world = FakeWorld(success_at=success_at)
    latency = f"{50 * act},{50 * (act + busy)}"
    queries = timed(latency, world=world, while_waiting="hold" if hold else "continue")
    assert sum(query.steps for query in queries) == world.steps == min(success_at, 20)
    for query in queries:
        sources = [(span.chunk, span.steps) for span in query.spans]
        assert sum(steps for _, steps in sources) == query.steps
        assert sum(steps for chunk, steps in sources if chunk is None) == query.idle
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
    class Sagging(FakeWorld):
        """Is a little below where it was told to be."""

        def advance(self, actions):
            told.extend(actions[:, 0].tolist())
            self._state[:7] = -0.5
            return super().advance(actions)

    told: list[float] = []
    suite = libero_object(max_steps=12, replan_steps=2, settle_steps=10)  # starts at 0.1
    suite.interface = held_at_its_state(suite.interface)
    chunk = np.tile(np.arange(1.0, 5.0)[:, None], (1, 7))
    pricing = open_pricing(RunConfig(clock="fixed:100,500"), [KEY])
    list(rollout(Sagging(), FakePolicy(actions=chunk), KEY, suite, pricing=pricing))
    # | - - a0 a1 a2 a3 - - - - | - -
    assert told == [0.1, 0.1, 1, 2, 3, 4, *[3.5] * 6]


def test_the_policy_is_told_each_instruction_from_its_control_step_on():
    class Listening(FakePolicy):
        def act(self, observation):
            heard.append(observation.language)
            return super().act(observation)

    heard: list[str] = []
    suite = libero_object(max_steps=20, replan_steps=5)
    list(rollout(FakeWorld(), Listening(), KEY, suite, {0: "first", 10: "second", 11: "third"}))
    assert heard == ["first", "first", "second", "third"]


class Reusing(FakeWorld):
    """Has one array each for its images, its state and its path, and clips actions in place."""

    def observe(self):
        now = super().observe()
        self.images = getattr(self, "images", None) or copy.deepcopy(dict(now.images))
        for name, image in now.images.items():
            self.images[name][...] = image
        return dataclasses.replace(now, images=self.images, state=self._state)

    def render(self, camera):
        return self.observe().images[camera]

    def advance(self, actions):
        result = super().advance(actions)
        actions[...] = np.nan
        self.path = getattr(self, "path", np.empty((99, 3)))
        self.path[: result.steps + 1] = result.end_effector
        return dataclasses.replace(result, end_effector=self.path[: result.steps + 1])


class Overwriting(FakePolicy):
    """Writes into whatever it is given, and into the actions that it has returned."""

    def act(self, observation):
        self.returned = super().act(observation).copy()
        for seen in (observation, *observation.history):
            seen.state[...] = np.nan
            for image in seen.images.values():
                image[...] = 0
            seen.images.clear()
        return self.returned

    def complete(self):
        self.returned[...] = np.nan
        return super().complete()


@pytest.mark.parametrize("hold", [Hold.ZERO, Hold.STATE])
@pytest.mark.parametrize("clock", ["paused", "fixed:120,300"])
def test_neither_a_policy_nor_a_world_that_reuses_its_arrays_changes_what_is_recorded_or_executed(
    clock, hold
):
    suite = libero_object(max_steps=20, replan_steps=4)
    suite.interface = held_at_its_state(suite.interface) if hold is Hold.STATE else suite.interface
    how = {"pricing": open_pricing(RunConfig(clock=clock), [KEY]), "picture_steps": 3, "history": 2}
    actions = np.linspace(-0.1, 0.1, 35).reshape(5, 7)
    plain, *others = (
        [seen_and_done(query) for query in rollout(world, policy(actions=actions), KEY, suite, **how)]
        for world, policy in [(FakeWorld(), FakePolicy), (Reusing(), FakePolicy), (FakeWorld(), Overwriting)]
    )
    for other in others:
        np.testing.assert_equal(other, plain)


def seen_and_done(query):
    """What a recorder reads of a query, after the next one has begun."""
    seen = [(each.images, each.state) for each in (query.observation, *query.observation.history)]
    return seen, query.actions, query.executed, query.end_effector, [each.image for each in query.pictures]


@pytest.mark.parametrize(("clock", "waiting"), [("paused", "continue"), ("fixed:120,300", "hold")])
def test_queries_record_executed_actions_and_the_end_effectors_path(clock, waiting):
    world, suite = FakeWorld(success_at=13), libero_object(settle_steps=2)
    policy = FakePolicy(actions=np.linspace(-0.1, 0.1, 70).reshape(10, 7))
    how = {"pricing": open_pricing(RunConfig(clock=clock), [KEY]), "while_waiting": waiting}
    queries = list(rollout(world, policy, KEY, suite, **how))
    steps = np.concatenate([np.diff(query.end_effector, axis=0) for query in queries])
    executed = np.concatenate([query.executed for query in queries])
    assert len(executed) == 13
    np.testing.assert_allclose(steps, executed[:, :3], atol=1e-12)
    assert [len(query.truths) for query in queries] == [
        query.steps + 1 if clock != "paused" else 1 for query in queries
    ]


HZ = 20.0
STEP_MS = 1e3 / HZ


def scheduled(latencies, *, replan, horizon, limit, waiting="continue", skips=True):
    """The timeline of an episode, a word for each control step, and its queries' records.

    `|` is a query, `b3` action 3 of the second query's chunk, `-` a step in which the robot is held.
    """
    limits = {"control_hz": HZ, "replan_steps": replan, "max_steps": limit}
    timeline = Timeline(FakeSuite.published.model_copy(update=limits), waiting, skips=skips)
    words, queries = [], []
    for actions, busy in latencies:
        if timeline.is_over:
            break
        timeline.issue()
        words.append("|")
        timeline.actions_after(actions * STEP_MS, horizon=horizon)
        words += executed(timeline)
        timeline.busy_for(busy * STEP_MS)
        words += executed(timeline)
        query = timeline.query
        queries.append((query.step, query.actions_step, query.free_step, query.continued, query.skipped))
    assert timeline.is_over, "the test gives too few latencies"
    return " ".join(words), queries


def executed(timeline):
    words = []
    while span := timeline.next_span():
        words += [
            "-" if span.chunk is None else f"{string.ascii_letters[span.chunk % 52]}{span.first + number}"
            for number in range(span.steps)
        ]
        timeline.advance(span, span.steps)
    return words


@pytest.mark.parametrize(
    ("latencies", "replan", "horizon", "limit", "expected"),
    [
        ([(0, 0)] * 3, 3, 5, 7, "| a0 a1 a2 | b0 b1 b2 | c0"),
        # No chunk before the first query, and a wait shorter than replan.
        ([(2, 2)] * 4, 4, 5, 14, "| - - a0 a1 | a2 a3 b2 b3 | b4 - c1 c2 | c3 c4"),
        # Held steps overtake nothing.
        ([(1, 6)] * 3, 2, 4, 13, "| - a0 a1 a2 a3 - | - b0 b1 b2 b3 - | -"),
        # A wait longer than the chunk, which overtakes the whole next one.
        ([(7, 7)] * 4, 2, 3, 24, "| - - - - - - - | a0 a1 a2 - - - - | - - - - - - - | c0 c1 c2"),
        # A k that changes.
        (
            [(0, 0), (2, 5), (0, 1), (3, 3), (1, 1)],
            *(3, 6, 15),
            "| a0 a1 a2 | a3 a4 b2 b3 b4 | c0 c1 c2 | c3 c4 c5 | d3",
        ),
        # As soon as the policy is free, and a chunk that is replaced as it comes.
        ([(1, 3)] * 3, 1, 4, 9, "| - a0 a1 | a2 b1 b2 | b3 c1 c2"),
        ([(2, 2)] * 4, 1, 6, 8, "| - - | a0 a1 | b2 b3 | c2 c3"),
        # The limit while waiting.
        ([(0, 0), (4, 9)], 2, 3, 5, "| a0 a1 | a2 - -"),
    ],
)
def test_timelines_equal_those_worked_out_by_hand(latencies, replan, horizon, limit, expected):
    assert scheduled(latencies, replan=replan, horizon=horizon, limit=limit)[0] == expected


def test_a_robot_that_is_held_while_waiting_starts_each_chunk_at_its_first_action():
    line, _ = scheduled([(2, 2)] * 3, replan=4, horizon=5, limit=14, waiting="hold")
    assert line == "| - - a0 a1 a2 a3 | - - b0 b1 b2 b3 | - -"
    line, _ = scheduled([(1, 6)] * 2, replan=2, horizon=3, limit=9, waiting="hold")
    assert line == "| - a0 a1 a2 - - | - b0 b1"


@pytest.mark.parametrize(
    ("milliseconds", "steps"),
    [(0, 0), (1e-12, 0), (0.1, 1), (50, 1), (50.001, 2), (150, 3), (151, 4), (-3, 0)],
)
def test_latencies_are_rounded_up_to_whole_control_steps(milliseconds, steps):
    assert steps_in(milliseconds, HZ) == steps


LATENCIES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted).map(tuple), min_size=1, max_size=6
).map(lambda some: list(itertools.islice(itertools.cycle(some), 60)))
CASES = {
    "latencies": LATENCIES,
    "replan": st.integers(1, 8),
    "horizon": st.integers(1, 12),
    "limit": st.integers(1, 60),
    "waiting": st.sampled_from(["continue", "hold"]),
}


@given(**CASES)
def test_every_step_executes_the_next_available_action_or_holds_and_queries_are_due_in_time(**case):
    line, queries = scheduled(**case)
    words = line.split()
    assert len(words) - words.count("|") == case["limit"]
    step = 0
    for word in words:
        if word not in "|-":
            assert step >= queries[string.ascii_letters.index(word[0])][1], "the actions have not come yet"
        step += word != "|"
    indices = {}
    for word in line.split():
        if word not in "|-":
            indices.setdefault(string.ascii_letters.index(word[0]), []).append(int(word[1:]))
    for query, executed_actions in indices.items():
        first = queries[query][4]
        assert executed_actions == list(range(first, first + len(executed_actions)))
    for *_, continued, skipped in queries:
        assert skipped in (0, min(continued, case["horizon"]))
    for (issued, actions, free, *_), (following, *_) in itertools.pairwise(queries):
        since = actions if case["waiting"] == "hold" else issued
        assert following == max(since + case["replan"], free)


@given(**CASES, more=st.tuples(st.integers(0, 5), st.integers(0, 5)).map(sorted))
def test_more_latency_never_makes_an_action_available_earlier(more, **case):
    _, queries = scheduled(**case)
    slower = [(a + more[0], b + more[1]) for a, b in case["latencies"]]
    _, later = scheduled(**{**case, "latencies": slower})
    for before, after in zip(queries, later, strict=False):
        assert after[0] >= before[0]
        assert after[1] >= before[1]
        assert after[2] >= before[2]


class Planning(FakePolicy):
    """Answers query q with actions of 100 q, 100 q + 1, …, and notes what it is told is under way."""

    def __init__(self):
        super().__init__()
        self.told = []

    def act(self, observation):
        self.told.append(observation.action_prefix)
        self.actions = np.tile(100.0 * self._query + np.arange(10.0)[:, None], (1, 7))
        return super().act(observation)


class Listening(FakeWorld):
    """Notes the first channel of what it is told, and the gripper's."""

    def __init__(self):
        super().__init__()
        self.arm, self.gripper = [], []

    def advance(self, actions):
        self.arm += actions[:, 0].tolist()
        self.gripper += actions[:, -1].tolist()
        return super().advance(actions)


def overlapped(overlap, latency="100", max_steps=10):
    """What a world was told, what the policy was, and the queries."""
    world, policy = Listening(), Planning()
    return world, policy, timed(latency, world, policy, max_steps=max_steps, overlap=overlap)


def test_blending_averages_with_falling_weights_except_grippers():
    """| - - a0 a1 a2 | a3 a4, then b2 b3 b4, of which b2 to b6 meet a5 to a9."""
    skipped, _, _ = overlapped("skip")
    world, _, queries = overlapped("blend")
    assert skipped.arm == [0, 0, 0, 1, 2, 3, 4, 102, 103, 104]
    assert world.arm[:7] == skipped.arm[:7]
    assert world.arm[7:] == pytest.approx(
        [(5 * 5 + 1 * 102) / 6, (4 * 6 + 2 * 103) / 6, (3 * 7 + 3 * 104) / 6]
    )
    assert world.gripper == skipped.gripper
    assert [query.blended for query in queries] == [0, 5]
    assert [query.spans for query in queries] == [query.spans for query in overlapped("skip")[2]]


@given(st.data())
def test_a_blended_chunk_lies_between_both_chunks(data):
    left, horizon = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 12))
    late = data.draw(st.integers(0, left))
    old, new = np.zeros((left, 2)), np.ones((horizon, 2))
    result = blend_chunks(old, new, late=late, channels=np.array([True, False]))
    assert (result[:, 1] == 1).all()
    assert (result[:late, 0] == 1).all(), "these are left out"
    assert (result[left:, 0] == 1).all()
    mixed = result[late : min(left, horizon), 0]
    assert ((mixed > 0) & (mixed < 1)).all() or late == 0
    assert (np.diff(mixed) >= 0).all()


def test_blending_refuses_rotations_whose_mean_is_not_a_rotation():
    action = LIBERO_INTERFACE.action
    assert averaged_channels(action).tolist() == [True] * 6 + [False]
    turned = [dataclasses.replace(part, motion=Motion.ABSOLUTE) for part in action.channels]
    for wrong in (
        dataclasses.replace(action, channels=tuple(turned)),
        dataclasses.replace(action, rotation=Rotation.QUATERNION_WXYZ),
    ):
        with pytest.raises(UsageError, match=r"the mean of .* is not a rotation; choose skip"):
            averaged_channels(wrong)


class Asking(OpenpiPolicy):
    """Answers query q with 100 q, 100 q + 1, … in every channel, and notes what it is told of its delay."""

    def __init__(self):
        super().__init__(self, dataclasses.replace(ROBOTS["libero"], action_prefix=True))
        self.told = []

    def reset(self, key=None):
        self.number = -1

    def infer(self, obs):
        self.told.append((obs["observation/delay_steps"], obs["observation/action_prefix"][:, 0].tolist()))
        return {"actions": np.tile(100.0 * self.number + np.arange(10.0)[:, None], (1, 7))}


HELD = 0.0  # the arm while the robot is held, which is also action a0
DELAY_RULES = {
    # d old actions, then new[d:e]: asynchronous clients, A2C2's naive baseline; and training-time RTC and RTC
    # in the model, whose answers begin with the d actions that they are told. 100 ms are 2 steps.
    "skip": (
        {},
        [HELD, HELD, 0, 1, 2, 3, 4, 102, 103, 104, 105, 106, 202, 203, 204],
        [(2, []), (2, [3, 4]), (2, [105, 106])],
    ),
    # The new chunk from its first action, which a policy computes for the state after those that it is told.
    "VLASH": (
        {"overlap": "whole"},
        [HELD, HELD, 0, 1, 2, 3, 4, 100, 101, 102, 103, 104, 200, 201, 202],
        [(2, []), (2, [3, 4]), (2, [103, 104])],
    ),
    # A blocking client.
    "hold": (
        {"while_waiting": "hold"},
        [HELD, HELD, 0, 1, 2, 3, 4, HELD, HELD, 100, 101, 102, 103, 104, HELD],
        [(2, []), (2, []), (2, [])],
    ),
    # The old chunk ends before the new one arrives: 400 ms are 8 steps.
    "a chunk that runs out": (
        {"latency": "400,500"},
        [*[HELD] * 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 108],
        [(8, []), (8, [2, 3, 4, 5, 6, 7, 8, 9])],
    ),
}


@pytest.mark.parametrize("rule", DELAY_RULES)
def test_a_delay_rule_executes_and_tells_what_was_worked_out_by_hand(rule):
    how, arm, told = DELAY_RULES[rule]
    world, policy = Listening(), Asking()
    timed(how.pop("latency", "100"), world, policy, max_steps=len(arm), **how)
    assert world.arm == arm
    assert policy.told == told


def test_on_a_measured_clock_a_policy_is_told_the_longest_delay_so_far_and_on_none_nothing():
    policy, suite = Asking(), libero_object(max_steps=15, replan_steps=5)
    policy.charged_ms = 100.0
    list(rollout(FakeWorld(), policy, KEY, suite, pricing=open_pricing(RunConfig(clock="measured"), [KEY])))
    assert [delay for delay, _ in policy.told] == [0, 2, 2]
    paused = Asking()
    list(rollout(FakeWorld(), paused, KEY, suite))
    assert paused.told == [(0, [])] * 3


def test_rtc_passes_the_action_prefix_to_the_policy():
    """| - - a0 a1 a2 a3 a4 a5 | a6 a7 b2 …: eight steps between queries."""
    _, policy, queries = overlapped("rtc", "100,400", max_steps=20)
    assert policy.told == [None, ActionPrefix(first=6, delay=2), ActionPrefix(first=8, delay=2)]
    assert [query.action_prefix for query in queries] == policy.told
    assert overlapped("skip", "100,400")[1].told == [None, None]
    # It is limited by the rest of the chunk.
    assert overlapped("rtc", "400,400", max_steps=30)[1].told[1] == ActionPrefix(first=0, delay=8)
    _, policy, _ = overlapped("rtc", "400,850", max_steps=60)
    assert policy.told[1] == ActionPrefix(first=9, delay=1)
    _, policy, _ = overlapped("rtc", "400,950", max_steps=60)
    assert set(policy.told) == {None}
