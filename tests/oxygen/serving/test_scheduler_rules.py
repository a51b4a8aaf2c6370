"""The scheduler's rules, one by one: who decodes, who is dropped, what each mode plans."""

import dataclasses
import subprocess
import sys

import pytest

from configs.errors import UsageError
from oxygen.serving.arrivals import Burst, EveryN
from oxygen.serving.scheduler import Limits, Mode, Scheduler, Wanted

STOP = 1
NARRATION = Wanted(arrivals=EveryN(1), max_tokens=4, priority=20, stop_token=STOP)
MEMORY = Wanted(arrivals=EveryN(2), max_tokens=6, priority=0, stop_token=STOP)


def scheduler_of(mode, *, streams=1, tasks=(NARRATION, MEMORY), slots, rows):
    return Scheduler(mode=mode, wanted=tasks, limits=Limits(streams=streams, slots=slots, rows=rows))


def ids(identities):
    return [(identity.task, identity.request_id, identity.query) for identity in identities]


@pytest.mark.parametrize("mode", [Mode.ISOLATED, Mode.PARALLEL])
def test_isolated_requests_have_a_prefill_each_and_follow_one_another(mode):
    plan = scheduler_of(mode, slots=4, rows=4).plan({0: 0})
    assert [stretch.own_prefill for stretch in plan.stretches] == [True, True]
    assert [len(stretch.rows) for stretch in plan.stretches] == [1, 1]
    assert [stretch.batch for stretch in plan.stretches] == [1, 1]
    assert [stretch.steps for stretch in plan.stretches] == [4, 6]


def test_isolated_robots_go_side_by_side_one_text_of_each_at_a_time():
    plan = scheduler_of(Mode.ISOLATED, streams=3, slots=6, rows=6).plan({0: 0, 1: 1, 2: 4})
    robots = [[birth.identity.stream for birth in stretch.births] for stretch in plan.stretches]
    assert robots == [[0, 1, 2], [0, 2]]
    assert [stretch.batch for stretch in plan.stretches] == [3, 3]


def test_shared_requests_run_in_one_batch_of_their_number_to_the_end_of_the_longest():
    (stretch,) = scheduler_of(Mode.SHARED, slots=4, rows=4).plan({0: 0}).stretches
    assert stretch.to_the_end
    assert not stretch.own_prefill
    assert len(stretch.rows) == stretch.batch == 2
    assert stretch.steps == 6


def test_unified_decodes_a_few_tokens_of_everything_in_progress():
    scheduler = scheduler_of(Mode.UNIFIED, slots=4, rows=4)
    (first,) = scheduler.plan({0: 0}).stretches
    scheduler.commit(dict.fromkeys(first.rows, (5, 5, 5)))
    (second,) = scheduler.plan({0: 1}).stretches
    assert first.batch == second.batch == 4
    assert set(first.rows) < set(second.rows)
    assert [birth.identity.task for birth in second.births] == [0]
    assert (first.steps, second.steps) == (6, 4), "as many steps as the longest text still needs"


def test_texts_of_a_robot_that_sits_out_go_on():
    scheduler = scheduler_of(Mode.UNIFIED, streams=2, slots=6, rows=6)
    scheduler.plan({0: 0, 1: 0})
    scheduler.commit({})
    plan = scheduler.plan({1: 1})
    assert {identity.stream for identity in plan.born} == {1}
    assert len(plan.rows) == 5


def test_narration_takes_the_row_of_a_memory_and_gives_it_back():
    scheduler = scheduler_of(Mode.UNIFIED, tasks=(NARRATION, MEMORY), slots=3, rows=1)
    narrates = [request.identity.task for request in alive_rows(scheduler, {0: 0})]
    assert narrates == [0]
    scheduler.commit({scheduler.alive[0].slot: (5, STOP)})
    assert [request.identity.task for request in alive_rows(scheduler, {})] == [1], "nobody narrates: it runs"
    assert [request.identity.task for request in alive_rows(scheduler, {0: 1})] == [0], (
        "and is left out again"
    )


def alive_rows(scheduler, queries):
    rows = scheduler.plan(queries).rows
    return [request for request in scheduler.alive if request.slot in rows]


def test_a_memory_older_by_more_than_the_head_start_goes_before_narration():
    narration = dataclasses.replace(NARRATION, priority=2)
    memory = dataclasses.replace(MEMORY, arrivals=EveryN(100))
    scheduler = scheduler_of(Mode.UNIFIED, tasks=(narration, memory), slots=9, rows=1)
    first = []
    for query in range(5):
        (request,) = alive_rows(scheduler, {0: query})
        first.append(request.identity.task)
        scheduler.commit({request.slot: (STOP,)})
    assert first == [0, 0, 1, 0, 0]


def test_a_full_queue_drops_the_oldest_that_waits_of_the_same_task():
    scheduler = scheduler_of(Mode.UNIFIED, slots=3, rows=1)
    assert scheduler.plan({0: 0}).dropped == ()  # narration 0 decodes, memory 1 waits
    assert scheduler.plan({0: 1}).dropped == ()  # narration 2 waits
    dropped = scheduler.plan({0: 2}).dropped  # narration 3 and memory 4 take their places
    assert ids(dropped) == [(0, 2, 1), (1, 1, 0)]
    assert [request.identity.request_id for request in scheduler.alive] == [0, 3, 4]


def test_a_request_that_finds_none_of_its_own_waiting_is_dropped_itself():
    scheduler = scheduler_of(Mode.UNIFIED, slots=2, rows=2)
    scheduler.plan({0: 0})
    assert ids(scheduler.plan({0: 1}).dropped) == [(0, 2, 1)]


def test_a_request_that_finds_none_of_its_own_waiting_takes_a_slot_where_two_of_another_task_wait():
    narration = dataclasses.replace(NARRATION, arrivals=EveryN(2))
    memory = dataclasses.replace(MEMORY, arrivals=EveryN(1))
    scheduler = scheduler_of(Mode.UNIFIED, tasks=(narration, memory), slots=4, rows=1)
    for query in range(2):
        assert scheduler.plan({0: query}).dropped == ()  # narration 0 decodes, memories 1 and 2 wait
    plan = scheduler.plan({0: 2})  # narration 3 takes the last slot, memory 4 the place of the first
    assert ids(plan.dropped) == [(1, 1, 0)]
    scheduler.commit({0: (STOP,)})
    assert (
        ids(scheduler.plan({0: 3}).dropped) == []
    )  # narration 3 decodes, memory 5 takes the slot of the first
    assert ids(scheduler.plan({0: 4}).dropped) == [
        (1, 2, 1),
        (1, 4, 2),
    ]  # narration 6 takes one, memory 7 one
    assert [request.identity.request_id for request in scheduler.alive] == [3, 5, 6, 7]


def test_one_robot_never_takes_the_last_slot_of_another():
    greedy = dataclasses.replace(NARRATION, arrivals=Burst(n=9, every=1))
    scheduler = scheduler_of(Mode.UNIFIED, streams=2, tasks=(greedy,), slots=4, rows=4)
    scheduler.plan({0: 0})
    assert {request.identity.stream for request in scheduler.alive} == {0}
    assert scheduler.free_slots == 1
    assert any(identity.stream == 1 for identity in scheduler.plan({0: 1, 1: 0}).born)
    assert {request.identity.stream for request in scheduler.alive} == {0, 1}


def test_the_end_of_an_episode_touches_no_other_robot():
    scheduler = scheduler_of(Mode.UNIFIED, streams=2, slots=4, rows=4)
    scheduler.plan({0: 0, 1: 0})
    assert {request.identity.stream for request in scheduler.cancel(1)} == {1}
    assert {request.identity.stream for request in scheduler.alive} == {0}
    scheduler.reset(1)
    again = scheduler.plan({0: 1, 1: 0}).born
    assert [identity.request_id for identity in again if identity.stream == 1] == [0, 1]
    assert [identity.request_id for identity in again if identity.stream == 0] == [2]


def test_limits_below_one_and_fewer_slots_than_tasks_are_refused():
    with pytest.raises(UsageError, match="rows is 0"):
        Limits(slots=1, rows=0)
    with pytest.raises(UsageError, match="3 slots for 2 language tasks of 2 robots"):
        scheduler_of(Mode.UNIFIED, streams=2, slots=3, rows=3)


def test_scheduling_needs_no_jax():
    modules = ", ".join(f"oxygen.serving.{name}" for name in ("scheduler", "budget", "language"))
    program = f"import sys; sys.modules['jax'] = None; import {modules}"
    subprocess.run([sys.executable, "-c", program], check=True)
