"""The scheduler by itself: every request ends, no slot leaks, order holds, for any arrivals and lengths."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen.scheduler import Arrivals, Limits, Mode, Scheduler

STOP = 1

arrivals = st.builds(
    Arrivals,
    every_queries=st.integers(1, 4),
    max_tokens=st.integers(1, 9),
    priority=st.integers(0, 3),
    stop_token=st.just(STOP),
)
limits = st.builds(
    Limits, slots=st.integers(3, 7), rows=st.integers(1, 7), tokens_per_frame=st.integers(1, 5)
)
worlds = st.tuples(st.lists(arrivals, min_size=1, max_size=3), limits, st.integers(0, 2**32 - 1))


class Texts:
    """What a model would write: every request has a length of its own, after which comes the stop token."""

    def __init__(self, seed):
        self._seed = seed
        self.written = {}
        self._request_in = {}

    def run(self, stretch):
        for birth in stretch.births:
            self.written[birth.slot] = []
            self._request_in[birth.slot] = birth.request_id
        for slot in stretch.rows:
            for _ in range(stretch.steps):
                length = (self._seed // (self._request_in[slot] + 1)) % 12
                tokens = self.written[slot]
                tokens.append(STOP if len(tokens) == length else 2 + len(tokens))


def play(mode, tasks, sizes, seed, frames):
    """Plan, run and commit so many frames; yields what is known after each."""
    scheduler = Scheduler(mode=mode, arrivals=tasks, limits=sizes)
    texts = Texts(seed)
    for query in range(frames):
        plan = scheduler.plan(query)
        for stretch in plan.stretches:
            texts.run(stretch)
        rows = [slot for stretch in plan.stretches for slot in stretch.rows]
        committed = scheduler.commit({slot: texts.written[slot] for slot in rows})
        yield scheduler, plan, committed


language_modes = st.sampled_from([Mode.ISOLATED, Mode.SHARED, Mode.UNIFIED])


@given(worlds, language_modes)
@settings(deadline=None)
def test_no_slot_leaks_or_is_held_twice(world, mode):
    tasks, sizes, seed = world
    for scheduler, plan, _ in play(mode, tasks, sizes, seed, 30):
        slots = [request.slot for request in scheduler.alive]
        assert len(set(slots)) == len(slots)
        assert len(slots) + scheduler.free_slots == sizes.slots
        for stretch in plan.stretches:
            assert len(set(stretch.rows)) == len(stretch.rows) <= sizes.rows
            assert all(0 <= slot < sizes.slots for slot in stretch.rows)
    scheduler.cancel()
    assert scheduler.free_slots == sizes.slots


@given(worlds)
@settings(deadline=None)
def test_every_request_ends_whatever_its_priority(world):
    tasks, sizes, seed = world
    frames_of_one = max(-(-task.max_tokens // sizes.tokens_per_frame) for task in tasks)
    patience = (sizes.slots + len(tasks) * 5) * (frames_of_one + 1)
    accounted = {}
    born = {}
    for _, plan, committed in play(Mode.UNIFIED, tasks, sizes, seed, 3 * patience):
        born |= {request_id: plan.query for _, request_id in plan.born}
        accounted |= {request_id: plan.query for _, request_id, _ in plan.dropped}
        accounted |= {ended.request_id: plan.query for ended in committed.ended}
        late = [key for key, query in born.items() if key not in accounted and plan.query - query > patience]
        assert not late


@given(worlds, language_modes)
@settings(deadline=None)
def test_a_request_is_accounted_for_exactly_once(world, mode):
    tasks, sizes, seed = world
    born, ends = [], []
    for scheduler, plan, committed in play(mode, tasks, sizes, seed, 25):
        alive = [request.request_id for request in scheduler.alive]
        born += [request_id for _, request_id in plan.born]
        ends += [request_id for _, request_id, _ in plan.dropped]
        ends += [ended.request_id for ended in committed.ended]
    ends += alive
    assert born == sorted(born)
    assert sorted(ends) == born


@given(worlds)
@settings(deadline=None)
def test_within_a_task_the_older_request_is_decoded_first(world):
    tasks, sizes, seed = world
    started = {task: [] for task in range(len(tasks))}
    for scheduler, _, _ in play(Mode.UNIFIED, tasks, sizes, seed, 25):
        for request in scheduler.alive:
            if request.decoding and request.request_id not in started[request.task]:
                started[request.task].append(request.request_id)
    assert all(order == sorted(order) for order in started.values())


@given(worlds, language_modes)
@settings(deadline=None)
def test_a_text_ends_with_its_stop_token_or_its_limit_whatever_was_decoded_beyond(world, mode):
    tasks, sizes, seed = world
    decoded = 0
    for scheduler, _plan, committed in play(mode, tasks, sizes, seed, 25):
        decoded += committed.decoded
        for ended in committed.ended:
            length = (seed // (ended.request_id + 1)) % 12
            limit = tasks[ended.task].max_tokens
            assert ended.stopped == (length < limit)
            assert len(ended.tokens) == min(length, limit)
            assert ended.decoded == len(ended.tokens) + ended.stopped
            assert STOP not in ended.tokens
            decoded -= ended.decoded
        if mode is not Mode.UNIFIED:
            assert not scheduler.alive, "what runs to the end is over when the query returns"
    assert decoded == sum(len(request.tokens) for request in scheduler.alive)


@given(worlds)
@settings(deadline=None)
def test_without_language_nothing_is_ever_planned(world):
    tasks, sizes, seed = world
    for _, plan, _ in play(Mode.ACTIONS, tasks, sizes, seed, 5):
        assert plan.stretches == plan.born == plan.dropped == ()


def scheduler_of(mode, **limits_):
    narration = Arrivals(every_queries=1, max_tokens=4, priority=1, stop_token=STOP)
    memory = Arrivals(every_queries=2, max_tokens=6, priority=0, stop_token=STOP)
    return Scheduler(mode=mode, arrivals=(narration, memory), limits=Limits(**limits_))


def test_isolated_requests_have_a_prefill_each_and_follow_one_another():
    plan = scheduler_of(Mode.ISOLATED, slots=4, rows=4, tokens_per_frame=1).plan(0)
    assert [stretch.own_prefill for stretch in plan.stretches] == [True, True]
    assert [len(stretch.rows) for stretch in plan.stretches] == [1, 1]
    assert [stretch.steps for stretch in plan.stretches] == [4, 6]


def test_shared_requests_run_in_one_batch_to_the_end_of_the_longest():
    (stretch,) = scheduler_of(Mode.SHARED, slots=4, rows=4, tokens_per_frame=1).plan(0).stretches
    assert stretch.to_the_end
    assert not stretch.own_prefill
    assert len(stretch.rows) == 2
    assert stretch.steps == 6


def test_unified_decodes_a_few_tokens_of_everything_in_progress():
    scheduler = scheduler_of(Mode.UNIFIED, slots=4, rows=4, tokens_per_frame=3)
    (first,) = scheduler.plan(0).stretches
    scheduler.commit(dict.fromkeys(first.rows, (5, 5, 5)))
    (second,) = scheduler.plan(1).stretches
    assert first.steps == second.steps == 3
    assert set(first.rows) < set(second.rows)
    assert [birth.task for birth in second.births] == [0]


def test_no_step_is_planned_that_nobody_needs():
    scheduler = scheduler_of(Mode.UNIFIED, slots=4, rows=4, tokens_per_frame=50)
    assert scheduler.plan(0).stretches[0].steps == 6


def test_a_full_queue_drops_the_oldest_that_waits_of_the_same_task():
    scheduler = scheduler_of(Mode.UNIFIED, slots=3, rows=1, tokens_per_frame=1)
    assert scheduler.plan(0).dropped == ()  # narration 0 decodes, memory 1 waits
    assert scheduler.plan(1).dropped == ()  # narration 2 waits
    assert scheduler.plan(2).dropped == ((0, 2, 1), (1, 1, 0))  # narration 3 and memory 4 take their places
    assert [request.request_id for request in scheduler.alive] == [0, 3, 4]


def test_a_request_that_finds_only_strangers_waiting_is_dropped_itself():
    scheduler = scheduler_of(Mode.UNIFIED, slots=2, rows=2, tokens_per_frame=1)
    scheduler.plan(0)
    assert scheduler.plan(1).dropped == ((0, 2, 1),)


def test_limits_below_one_are_refused():
    with pytest.raises(UsageError, match="rows is 0"):
        Limits(slots=1, rows=0, tokens_per_frame=1)


def test_scheduling_needs_no_jax():
    program = "import sys; sys.modules['jax'] = None; import oxygen.scheduler"
    subprocess.run([sys.executable, "-c", program], check=True)
