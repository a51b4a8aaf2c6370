"""The scheduler: every request ends, no slot leaks, order holds, whatever arrives; its rules; arrivals."""

import dataclasses
import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import UsageError
from contracts.mode import Mode
from oxygen.serving.engine_config import EngineConfig, ample_slots
from oxygen.serving.language import Burst, EveryN, LanguageTask, Poisson, RandomLength
from oxygen.serving.requests import RequestState
from oxygen.serving.scheduler import Deadline, FixedTokens, Scheduler, joined

STOP = 1
LONGEST = 9

regular = st.builds(EveryN, st.integers(1, 5)) | st.builds(
    Burst, n=st.integers(1, 4), every=st.integers(1, 5)
)
one_length = regular | st.builds(Poisson, rate=st.floats(0.1, 3), seed=st.integers(0, 99))
random_length = st.builds(
    RandomLength,
    arrivals=one_length,
    min_tokens=st.integers(1, 3),
    max_tokens=st.integers(3, LONGEST),
    seed=st.just(0),
)
wanted = st.fixed_dictionaries(
    {"arrivals": one_length | random_length, "max_tokens": st.just(LONGEST), "priority": st.integers(0, 6)}
)


@dataclasses.dataclass(frozen=True)
class Step:
    """Whether the episode ends after an engine step, and how many tokens it decodes."""

    ending: bool
    tokens: int


@dataclasses.dataclass(frozen=True)
class World:
    """Everything that comes at a scheduler from outside."""

    wanted: tuple[Mapping[str, Any], ...]
    slots: int
    rows: int
    lengths: int
    steps: tuple[Step, ...]

    @property
    def tasks(self):
        """Made here, since checking their types draws random numbers, which a strategy must not."""
        given = {"name": "text", "prompt": "Say", "suffix": (5,), "stop_token": STOP}
        return tuple(LanguageTask(**given, **each) for each in self.wanted)


@st.composite
def worlds(draw, most=25):
    asked = tuple(draw(st.lists(wanted, min_size=1, max_size=3)))
    slots = len(asked) + draw(st.integers(0, 4))
    step = st.builds(Step, ending=st.integers(0, 5).map(lambda die: die == 5), tokens=st.integers(1, 4))
    return World(
        wanted=asked,
        slots=slots,
        rows=draw(st.integers(1, slots)),
        lengths=draw(st.integers(0, 2**32 - 1)),
        steps=tuple(draw(st.lists(step, min_size=1, max_size=most))),
    )


class FakeTexts:
    """What a model would write: every request has a length of its own, after which comes the stop token."""

    def __init__(self, lengths):
        self._lengths = lengths
        self._written = {}
        self._owner = {}

    def length(self, request):
        return (self._lengths // (request.request_id + 1)) % 12

    def run(self, plan, steps):
        for job in plan.jobs:
            for request in job.new:
                self._written[request.slot], self._owner[request.slot] = [], request
            for slot in job.slots:
                for _ in range(job.steps if job.to_the_end else min(steps, job.steps)):
                    tokens = self._written[slot]
                    over = len(tokens) == self.length(self._owner[slot])
                    tokens.append(STOP if over else 2 + len(tokens))
        return {slot: self._written[slot] for job in plan.jobs for slot in job.slots}


def play(world, mode):
    """Every step of a world, planned, run and committed. Requests are cancelled in between."""
    scheduler = scheduler_of(mode, tasks=world.tasks, slots=world.slots, rows=world.rows)
    texts = FakeTexts(world.lengths)
    for number, step in enumerate(world.steps):
        plan = scheduler.plan(number)
        active = scheduler.active
        happened = SimpleNamespace(
            number=number,
            plan=plan,
            rows=[request for job in plan.jobs for request in job.rows],
            active=active,
            order={request: request.order for request in active},
            new_tokens=scheduler.commit(texts.run(plan, step.tokens)),
            finished=[request for request in active if request.state is RequestState.FINISHED],
        )
        happened.cancelled = scheduler.cancel() if step.ending else ()
        happened.left = scheduler.active
        yield scheduler, happened


all_modes = st.sampled_from(list(Mode))
language_modes = st.sampled_from([mode for mode in Mode if mode is not Mode.ACTIONS])


@given(worlds(), all_modes)
def test_no_slot_leaks_or_is_held_twice_and_no_batch_is_too_large(world, mode):
    for scheduler, step in play(world, mode):
        slots = [request.slot for request in scheduler.active]
        assert len(set(slots)) == len(slots)
        assert len(slots) + len(scheduler._free) == world.slots
        for job in step.plan.jobs:
            assert 0 < len(set(job.slots)) == len(job.slots) <= job.batch <= scheduler.width <= world.rows
            assert all(0 <= slot < world.slots for slot in job.slots)
    scheduler.cancel()
    assert len(scheduler._free) == world.slots


@given(worlds(), all_modes)
def test_every_request_ends_exactly_once(world, mode):
    requested, ends = [], []
    for _, step in play(world, mode):
        requested += step.plan.requested
        for state, ended in (
            (RequestState.DROPPED, step.plan.dropped),
            (RequestState.FINISHED, step.finished),
            (RequestState.CANCELLED, step.cancelled),
        ):
            assert all(request.state is state for request in ended)
            ends += ended
    ends += step.left
    assert [request.request_id for request in requested] == list(range(len(requested)))
    assert len(ends) == len(set(ends))
    assert set(ends) == set(requested)


@given(worlds())
def test_with_ample_slots_no_request_is_dropped_on_arrival_but_for_younger_ones(world):
    """An older one of its task makes room, or, where none waits, one of a task of which two do."""
    slots = ample_slots(rows=world.rows, tasks=len(world.tasks))
    for _, step in play(dataclasses.replace(world, slots=slots), Mode.UNIFIED):
        newest = {request.task: request for request in step.plan.requested}
        assert set(newest.values()) <= set(step.active)


@st.composite
def crowds(draw):
    """More is requested, for a hundred steps, than there are rows and slots for."""
    task = st.fixed_dictionaries(
        {
            "arrivals": st.builds(EveryN, st.integers(1, 2)) | st.just(Burst(n=2, every=3)),
            "max_tokens": st.integers(1, 3),
            "priority": st.integers(0, 9),
        }
    )
    wanted = tuple(draw(st.lists(task, min_size=2, max_size=3)))
    step = Step(ending=False, tokens=draw(st.integers(1, 2)))
    return World(
        wanted=wanted,
        slots=len(wanted) + draw(st.integers(0, 3)),
        rows=draw(st.integers(1, 2)),
        lengths=draw(st.integers(0, 2**32 - 1)),
        steps=(step,) * 100,
    )


def bound(world, task):
    """Steps from a request's arrival to its end; the scheduler's first lines say why."""
    steps_each = -(-max(other.max_tokens for other in world.tasks) // world.steps[0].tokens)
    head_start = max(other.priority for other in world.tasks) - task.priority
    return head_start + (world.slots - 1) * steps_each // world.rows + steps_each


@given(crowds())
def test_a_request_that_is_not_dropped_ends_within_the_bound(world):
    arrived = {}
    for _, step in play(world, Mode.UNIFIED):
        arrived |= dict.fromkeys(step.plan.requested, step.number)
        for request in step.active:
            assert step.number - arrived[request] + 1 <= bound(world, world.tasks[request.task])


@given(crowds())
def test_a_task_that_keeps_asking_has_a_text_finished_within_the_bound(world):
    """Though each of its requests may be dropped for a newer one: places in the line are inherited."""
    waited = {}
    for _, step in play(world, Mode.UNIFIED):
        waited = {task: waited.get(task, 0) + 1 for task in {request.task for request in step.active}}
        for task, steps in waited.items():
            assert steps <= bound(world, world.tasks[task])
        for request in step.finished:
            waited.pop(request.task, None)


@given(worlds() | crowds())
def test_a_request_waits_only_for_those_that_came_before_it_or_with_head_start(world):
    """As long as nothing has been dropped, and so no place has been inherited.

    Requests of one step stand in the order of tasks and ids.
    """
    arrived = {}
    for _, step in play(world, Mode.UNIFIED):
        arrived |= dict.fromkeys(step.plan.requested, step.number)
        if step.plan.dropped:
            break
        waiting = [request for request in step.active if request not in step.rows]
        assert not waiting or len(step.rows) == world.rows
        for request in waiting:
            for other in step.rows:
                gain = world.tasks[other.task].priority - world.tasks[request.task].priority
                later = arrived[other] - arrived[request]
                serials = step.order[other][1], step.order[request][1]
                assert later < gain or (later == gain and serials[0] < serials[1])


@given(worlds(), language_modes)
def test_requests_of_a_task_begin_in_order_and_once_begun_are_not_dropped(world, mode):
    begun, order = set(), {}
    for _, step in play(world, mode):
        assert not begun & set(step.plan.dropped)
        for request in sorted(step.rows, key=lambda request: request.request_id):
            if request not in begun:
                order.setdefault(request.task, []).append(request.request_id)
        begun |= set(step.rows)
        for request in step.active:
            due = world.tasks[request.task].arrivals.due(0, request.query)
            assert request.limit in {limit or LONGEST for limit in due}
    assert all(ids == sorted(ids) for ids in order.values())


@given(worlds(), language_modes)
def test_a_text_ends_with_its_stop_token_or_its_limit_whatever_was_decoded_beyond(world, mode):
    texts = FakeTexts(world.lengths)
    decoded = 0
    for scheduler, step in play(world, mode):
        decoded += sum(step.new_tokens.values())
        for request in step.finished:
            length = texts.length(request)
            assert request.stopped == (length < request.limit)
            assert len(request.tokens) == min(length + 1, request.limit)
            assert STOP not in request.tokens[:-1]
            decoded -= len(request.tokens)
        decoded -= sum(len(request.tokens) for request in step.cancelled)
        if mode not in (Mode.INTERLEAVED, Mode.UNIFIED):
            assert not scheduler.active, "what runs to the end is over when the query is complete"
    assert decoded == sum(len(request.tokens) for request in step.left)


@given(worlds())
def test_without_language_nothing_is_ever_planned(world):
    for _, step in play(world, Mode.ACTIONS):
        assert step.plan.jobs == step.plan.requested == step.plan.dropped == ()


NARRATION = LanguageTask(
    name="narration", prompt="Narrate", suffix=(5,), max_tokens=4, priority=20, stop_token=STOP
)
MEMORY = LanguageTask(
    name="memory", prompt="Remember", arrivals=EveryN(2), suffix=(6,), max_tokens=6, stop_token=STOP
)


def scheduler_of(mode, *, tasks=(NARRATION, MEMORY), **sizes):
    return Scheduler(mode=mode, tasks=tasks, **sizes)


def ids(requests):
    return [(request.task, request.request_id, request.query) for request in requests]


@pytest.mark.parametrize(
    ("mode", "own_prefill", "to_the_end", "jobs"),
    [
        (Mode.ISOLATED, True, True, [(1, 1, 4), (1, 1, 6)]),
        (Mode.PARALLEL, True, True, [(1, 1, 4), (1, 1, 6)]),
        (Mode.INTERLEAVED, True, False, [(1, 1, 4), (1, 1, 6)]),
        (Mode.SHARED, False, True, [(2, 2, 6)]),
        (Mode.UNIFIED, False, False, [(2, 4, 6)]),
    ],
)
def test_each_mode_plans_its_jobs_of_rows_batch_and_steps(mode, own_prefill, to_the_end, jobs):
    plan = scheduler_of(mode, slots=4, rows=4).plan(0)
    assert {(job.own_prefill, job.to_the_end) for job in plan.jobs} == {(own_prefill, to_the_end)}
    assert [(len(job.rows), job.batch, job.steps) for job in plan.jobs] == jobs
    assert [request for job in plan.jobs for request in job.new] == list(plan.requested)


def test_interleaved_requests_get_a_few_tokens_one_by_one():
    scheduler = scheduler_of(Mode.INTERLEAVED, slots=4, rows=1)
    scheduler.commit({job.slots[0]: (5, 5) for job in scheduler.plan(0).jobs})
    jobs = [(len(job.new), len(job.rows), job.steps) for job in scheduler.plan(1).jobs]
    assert jobs == [(0, 1, 2), (1, 1, 4), (0, 1, 4)], "by priority"


def test_unified_decodes_a_few_tokens_of_everything_in_progress():
    scheduler = scheduler_of(Mode.UNIFIED, slots=4, rows=4)
    (first,) = scheduler.plan(0).jobs
    scheduler.commit(dict.fromkeys(first.slots, (5, 5, 5)))
    (second,) = scheduler.plan(1).jobs
    assert first.batch == second.batch == 4
    assert set(first.rows) < set(second.rows)
    assert [request.task for request in second.new] == [0]
    assert (first.steps, second.steps) == (6, 4), "as many steps as the longest text still needs"


def test_narration_takes_the_row_of_a_memory_and_gives_it_back():
    narration = dataclasses.replace(NARRATION, arrivals=EveryN(2))
    memory = dataclasses.replace(MEMORY, arrivals=EveryN(9))
    scheduler = scheduler_of(Mode.UNIFIED, tasks=(narration, memory), slots=3, rows=1)
    assert [request.task for request in decoded(scheduler, 0)] == [0]
    scheduler.commit({scheduler.active[0].slot: (5, STOP)})
    assert [request.task for request in decoded(scheduler, 1)] == [1], "nobody narrates: it runs"
    assert [request.task for request in decoded(scheduler, 2)] == [0], "and is left out again"


def decoded(scheduler, query):
    (job,) = scheduler.plan(query).jobs
    return job.rows


def test_a_memory_older_by_more_than_the_head_start_goes_before_narration():
    narration = dataclasses.replace(NARRATION, priority=2)
    memory = dataclasses.replace(MEMORY, arrivals=EveryN(100))
    scheduler = scheduler_of(Mode.UNIFIED, tasks=(narration, memory), slots=9, rows=1)
    first = []
    for query in range(5):
        (request,) = decoded(scheduler, query)
        first.append(request.task)
        scheduler.commit({request.slot: (STOP,)})
    assert first == [0, 0, 1, 0, 0]


def test_a_full_queue_drops_the_oldest_that_waits_of_the_same_task():
    scheduler = scheduler_of(Mode.UNIFIED, slots=3, rows=1)
    assert scheduler.plan(0).dropped == ()  # narration 0 decodes, memory 1 waits
    assert scheduler.plan(1).dropped == ()  # narration 2 waits
    dropped = scheduler.plan(2).dropped  # narration 3 and memory 4 take their places
    assert ids(dropped) == [(0, 2, 1), (1, 1, 0)]
    assert [request.request_id for request in scheduler.active] == [0, 3, 4]


def test_a_request_that_finds_none_of_its_own_waiting_is_dropped_itself():
    scheduler = scheduler_of(Mode.UNIFIED, slots=2, rows=2)
    scheduler.plan(0)
    assert ids(scheduler.plan(1).dropped) == [(0, 2, 1)]


def test_a_request_that_finds_none_of_its_own_waiting_takes_a_slot_where_two_of_another_task_wait():
    narration = dataclasses.replace(NARRATION, arrivals=EveryN(2))
    memory = dataclasses.replace(MEMORY, arrivals=EveryN(1))
    scheduler = scheduler_of(Mode.UNIFIED, tasks=(narration, memory), slots=4, rows=1)
    for query in range(2):
        assert scheduler.plan(query).dropped == ()  # narration 0 decodes, memories 1 and 2 wait
    # Narration 3 takes the last slot, memory 4 the place of the first.
    assert ids(scheduler.plan(2).dropped) == [(1, 1, 0)]
    scheduler.commit({0: (STOP,)})
    # Narration 3 decodes, memory 5 takes the slot of the first.
    assert ids(scheduler.plan(3).dropped) == []
    # Narration 6 takes one, memory 7 one.
    assert ids(scheduler.plan(4).dropped) == [(1, 2, 1), (1, 4, 2)]
    assert [request.request_id for request in scheduler.active] == [3, 5, 6, 7]


def test_an_episode_begins_with_nothing_of_the_last_one():
    scheduler = scheduler_of(Mode.UNIFIED, slots=4, rows=4)
    scheduler.plan(0)
    scheduler.reset(seed=9)
    assert scheduler.active == ()
    assert [(request.request_id, request.seed) for request in scheduler.plan(0).requested] == [(0, 9), (1, 9)]


def robots_of(count, mode):
    return [scheduler_of(mode, robot=robot, slots=2, rows=2) for robot in range(count)]


def test_robots_share_no_slot():
    requests = [scheduler.plan(0).requested for scheduler in robots_of(3, Mode.UNIFIED)]
    assert sorted(request.slot for some in requests for request in some) == list(range(6))
    assert [{request.robot for request in some} for some in requests] == [{0}, {1}, {2}]


@pytest.mark.parametrize(
    ("mode", "together"),
    [
        (Mode.ISOLATED, [(3, [0, 1, 2]), (3, [0, 2])]),
        (Mode.INTERLEAVED, [(3, [0, 1, 2]), (3, [0, 2])]),
        (Mode.SHARED, [(6, [0, 0, 1, 2, 2])]),
        (Mode.UNIFIED, [(6, [0, 0, 1, 2, 2])]),
    ],
)
def test_robots_go_side_by_side_in_batches_of_a_size_that_does_not_depend_on_who_has_a_query(mode, together):
    schedulers = robots_of(3, mode)
    for present in ((0, 1, 2), (1,)):
        plans = [schedulers[robot].plan(robot) for robot in present]
        jobs = joined(plans, robots=3, width=schedulers[0].width)
        assert {job.batch for job in jobs} == {together[0][0]}
        if len(present) == 3:
            assert [(job.batch, [request.robot for request in job.rows]) for job in jobs] == together
            assert [request for job in jobs for request in job.new] == [
                request for job in jobs for request in job.rows
            ]
        for scheduler in schedulers:
            scheduler.cancel()


def test_a_robot_alone_has_its_jobs_as_they_are_planned():
    for mode in set(Mode) - {Mode.ACTIONS}:
        plan = scheduler_of(mode, slots=4, rows=4).plan(0)
        assert joined([plan], robots=1, width=4) == list(plan.jobs)


QUERIES = range(2000)


def counts(arrivals, episode=0, queries=QUERIES):
    return [len(arrivals.due(episode, query)) for query in queries]


def test_every_n_brings_one_at_every_nth_query_and_a_burst_several():
    assert counts(EveryN(3))[:7] == [1, 0, 0, 1, 0, 0, 1]
    assert counts(Burst(n=4, every=3))[:7] == [4, 0, 0, 4, 0, 0, 4]


def test_poisson_has_the_mean_and_the_variance_of_its_rate():
    brought = counts(Poisson(rate=1.5, seed=3))
    mean = sum(brought) / len(brought)
    variance = sum((count - mean) ** 2 for count in brought) / len(brought)
    error = math.sqrt(1.5 / len(brought))
    assert abs(mean - 1.5) < 4 * error
    assert abs(variance - 1.5) < 0.3


def test_chance_is_the_same_every_time_and_another_for_every_episode_and_seed():
    first = counts(Poisson(rate=1.5, seed=3))
    assert counts(Poisson(rate=1.5, seed=3)) == first
    assert counts(Poisson(rate=1.5, seed=4)) != first
    assert counts(Poisson(rate=1.5, seed=3), episode=2**64 - 1) != first


def test_random_lengths_fill_their_range_and_change_nothing_about_when():
    inner = Burst(n=2, every=5)
    arrivals = RandomLength(arrivals=inner, min_tokens=3, max_tokens=6, seed=1)
    limits = [limit for query in QUERIES for limit in arrivals.due(0, query)]
    assert set(limits) == {3, 4, 5, 6}
    assert counts(arrivals) == counts(inner)
    assert arrivals.longest == 6
    assert inner.longest is None


@given(regular)
def test_room_is_made_for_exactly_the_most_that_regular_arrivals_bring(arrivals):
    brought = counts(arrivals, queries=range(60))
    for length in (1, 3, 7, 10):
        windows = [sum(brought[start : start + length]) for start in range(40)]
        assert arrivals.within(length) == max(windows)


def test_room_for_poisson_is_rarely_too_little():
    arrivals = Poisson(rate=0.8, seed=5)
    brought = counts(arrivals)
    windows = [sum(brought[start : start + 5]) for start in range(0, len(brought), 5)]
    assert sum(window > arrivals.within(5) for window in windows) / len(windows) < 0.01


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EveryN(0), "n is 0; it must be at least 1"),
        (lambda: Poisson(rate=0.0, seed=1), "Poisson: rate is 0.0"),
        (lambda: FixedTokens(0), "tokens per frame is 0"),
        (lambda: Deadline(0.0), "the deadline is 0.0 ms"),
        (lambda: RandomLength(arrivals=EveryN(1), min_tokens=5, max_tokens=4, seed=0), "max_tokens is 4; it"),
        (lambda: EngineConfig(slots=1, rows=0), "rows is 0"),
        (lambda: scheduler_of(Mode.UNIFIED, slots=1, rows=1), "1 slots for 2 language tasks; give each"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()
