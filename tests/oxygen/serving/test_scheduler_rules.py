"""The scheduler's rules, one by one: who decodes, who is dropped, what each mode plans."""

import dataclasses

import pytest

from configs.errors import UsageError
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import Burst, EveryN, LanguageTask
from oxygen.serving.scheduler import Mode, Scheduler

STOP = 1
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


@pytest.mark.parametrize("mode", [Mode.ISOLATED, Mode.PARALLEL])
def test_isolated_requests_have_a_prefill_each_and_follow_one_another(mode):
    plan = scheduler_of(mode, slots=4, rows=4).plan({0: 0})
    assert [job.own_prefill for job in plan.jobs] == [True, True]
    assert [len(job.rows) for job in plan.jobs] == [1, 1]
    assert [job.batch for job in plan.jobs] == [1, 1]
    assert [job.steps for job in plan.jobs] == [4, 6]


def test_isolated_robots_go_side_by_side_one_text_of_each_at_a_time():
    plan = scheduler_of(Mode.ISOLATED, robots=3, slots=6, rows=6).plan({0: 0, 1: 1, 2: 4})
    robots = [[request.robot for request in job.new] for job in plan.jobs]
    assert robots == [[0, 1, 2], [0, 2]]
    assert [job.batch for job in plan.jobs] == [3, 3]


def test_interleaved_requests_have_a_prefill_each_and_get_a_few_tokens_one_by_one():
    scheduler = scheduler_of(Mode.INTERLEAVED, slots=4, rows=1)
    first = scheduler.plan({0: 0}).jobs
    scheduler.commit({job.slots[0]: (5, 5) for job in first})
    second = scheduler.plan({0: 1}).jobs
    assert [(len(job.new), job.steps) for job in first] == [(1, 4), (1, 6)]
    assert [(len(job.new), job.steps) for job in second] == [(0, 2), (1, 4), (0, 4)], "by priority"
    for job in (*first, *second):
        assert job.own_prefill
        assert not job.to_the_end
        assert len(job.rows) == job.batch == 1


def test_shared_requests_run_in_one_batch_of_their_number_to_the_end_of_the_longest():
    (job,) = scheduler_of(Mode.SHARED, slots=4, rows=4).plan({0: 0}).jobs
    assert job.to_the_end
    assert not job.own_prefill
    assert len(job.rows) == job.batch == 2
    assert job.steps == 6


def test_unified_decodes_a_few_tokens_of_everything_in_progress():
    scheduler = scheduler_of(Mode.UNIFIED, slots=4, rows=4)
    (first,) = scheduler.plan({0: 0}).jobs
    scheduler.commit(dict.fromkeys(first.slots, (5, 5, 5)))
    (second,) = scheduler.plan({0: 1}).jobs
    assert first.batch == second.batch == 4
    assert set(first.rows) < set(second.rows)
    assert [request.task for request in second.new] == [0]
    assert (first.steps, second.steps) == (6, 4), "as many steps as the longest text still needs"


def test_narration_takes_the_row_of_a_memory_and_gives_it_back():
    scheduler = scheduler_of(Mode.UNIFIED, tasks=(NARRATION, MEMORY), slots=3, rows=1)
    narrates = [request.task for request in decoded(scheduler, {0: 0})]
    assert narrates == [0]
    scheduler.commit({scheduler.active[0].slot: (5, STOP)})
    assert [request.task for request in decoded(scheduler, {})] == [1], "nobody narrates: it runs"
    assert [request.task for request in decoded(scheduler, {0: 1})] == [0], "and is left out again"


def decoded(scheduler, queries):
    (job,) = scheduler.plan(queries).jobs
    return job.rows


def test_a_memory_older_by_more_than_the_head_start_goes_before_narration():
    narration = dataclasses.replace(NARRATION, priority=2)
    memory = dataclasses.replace(MEMORY, arrivals=EveryN(100))
    scheduler = scheduler_of(Mode.UNIFIED, tasks=(narration, memory), slots=9, rows=1)
    first = []
    for query in range(5):
        (request,) = decoded(scheduler, {0: query})
        first.append(request.task)
        scheduler.commit({request.slot: (STOP,)})
    assert first == [0, 0, 1, 0, 0]


def test_a_full_queue_drops_the_oldest_that_waits_of_the_same_task():
    scheduler = scheduler_of(Mode.UNIFIED, slots=3, rows=1)
    assert scheduler.plan({0: 0}).dropped == ()  # narration 0 decodes, memory 1 waits
    assert scheduler.plan({0: 1}).dropped == ()  # narration 2 waits
    dropped = scheduler.plan({0: 2}).dropped  # narration 3 and memory 4 take their places
    assert ids(dropped) == [(0, 2, 1), (1, 1, 0)]
    assert [request.request_id for request in scheduler.active] == [0, 3, 4]


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
    assert [request.request_id for request in scheduler.active] == [3, 5, 6, 7]


def test_one_robot_never_takes_the_last_slot_of_another():
    greedy = dataclasses.replace(NARRATION, arrivals=Burst(n=9, every=1))
    scheduler = scheduler_of(Mode.UNIFIED, robots=2, tasks=(greedy,), slots=4, rows=4)
    scheduler.plan({0: 0})
    assert {request.robot for request in scheduler.active} == {0}
    assert scheduler.free_slots == 1
    assert any(request.robot == 1 for request in scheduler.plan({0: 1, 1: 0}).requested)
    assert {request.robot for request in scheduler.active} == {0, 1}


def test_the_end_of_an_episode_touches_no_other_robot():
    scheduler = scheduler_of(Mode.UNIFIED, robots=2, slots=4, rows=4)
    scheduler.plan({0: 0, 1: 0})
    assert {request.robot for request in scheduler.cancel(1)} == {1}
    assert {request.robot for request in scheduler.active} == {0}
    scheduler.reset(1)
    again = scheduler.plan({0: 1, 1: 0}).requested
    assert [request.request_id for request in again if request.robot == 1] == [0, 1]
    assert [request.request_id for request in again if request.robot == 0] == [2]


def test_limits_below_one_and_fewer_slots_than_tasks_are_refused():
    with pytest.raises(UsageError, match="rows is 0"):
        EngineConfig(slots=1, rows=0)
    with pytest.raises(UsageError, match="3 slots for 2 language tasks of 2 robots"):
        scheduler_of(Mode.UNIFIED, robots=2, slots=3, rows=3)
