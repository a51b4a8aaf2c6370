"""The scheduler by itself: every request ends, no slot leaks, order holds, whatever comes and goes."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from oxygen.serving.engine_config import ample_slots
from oxygen.serving.language import Burst, EveryN
from oxygen.serving.requests import RequestState
from oxygen.serving.scheduler import Mode
from tests.oxygen.serving.worlds import LONGEST, STOP, FakeTexts, Step, World, play, worlds

all_modes = st.sampled_from(list(Mode))
language_modes = st.sampled_from([mode for mode in Mode if mode is not Mode.ACTIONS])


@given(worlds(), all_modes)
def test_no_slot_leaks_or_is_held_twice_and_no_batch_is_too_large(world, mode):
    for scheduler, step in play(world, mode):
        slots = [request.slot for request in scheduler.active]
        assert len(set(slots)) == len(slots)
        assert len(slots) + scheduler.free_slots == world.slots
        for job in step.plan.jobs:
            assert 0 < len(set(job.slots)) == len(job.slots) <= job.batch
            assert job.batch <= max(world.rows, world.robots)
            assert all(0 <= slot < world.slots for slot in job.slots)
    for robot in range(world.robots):
        scheduler.cancel(robot)
    assert scheduler.free_slots == world.slots


@given(worlds(), all_modes)
def test_every_request_ends_exactly_once(world, mode):
    """Those that are active when nothing is requested any more have ended soon after."""
    requested, ends = [], []
    quiet = Step(present=frozenset(), ending=frozenset(), tokens=1)
    rounds = -(-world.slots // world.rows)
    drained = dataclasses.replace(world, steps=world.steps + (quiet,) * rounds * LONGEST)
    for _, step in play(drained, mode):
        requested += step.plan.requested
        for state, ended in (
            (RequestState.DROPPED, step.plan.dropped),
            (RequestState.FINISHED, step.finished),
            (RequestState.CANCELLED, step.cancelled),
        ):
            assert all(request.state is state for request in ended)
            ends += ended
    assert step.left == ()
    names = [(request.robot, request.request_id) for request in requested]
    assert len(set(names)) == len(names)
    assert len(ends) == len(set(ends))
    assert set(ends) == set(requested)


@given(worlds())
def test_with_ample_slots_no_request_is_dropped_on_arrival_but_for_younger_ones(world):
    """An older one of its task makes room, or, where none waits, one of a task of which two do."""
    slots = ample_slots(rows=world.rows, tasks=len(world.tasks), robots=world.robots)
    for _, step in play(dataclasses.replace(world, slots=slots), Mode.UNIFIED):
        newest = {request.queue: request for request in step.plan.requested}
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
    robots, tokens = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    step = Step(present=frozenset(range(robots)), ending=frozenset(), tokens=tokens)
    return World(
        wanted=wanted,
        robots=robots,
        slots=robots * len(wanted) + draw(st.integers(0, 3)),
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
        queues = {request.queue for request in step.active}
        waited = {queue: waited.get(queue, 0) + 1 for queue in queues}
        for (_, task), steps in waited.items():
            assert steps <= bound(world, world.tasks[task])
        for request in step.finished:
            waited.pop(request.queue, None)


@given(worlds())
def test_a_request_waits_only_for_those_that_came_before_it_or_with_head_start(world):
    """As long as nothing has been dropped, and so no place has been inherited.

    Requests of one step stand in the order of robots, tasks and ids.
    """
    arrived = {}
    for _, step in play(world, Mode.UNIFIED):
        arrived |= dict.fromkeys(step.plan.requested, step.number)
        if step.plan.dropped:
            return
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
                order.setdefault(request.queue, []).append(request.request_id)
        begun |= set(step.rows)
        for request in step.active:
            due = world.tasks[request.task].arrivals.due(request.robot, request.query)
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
