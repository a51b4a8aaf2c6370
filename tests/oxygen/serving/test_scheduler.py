"""The scheduler by itself: every request ends, no slot leaks, order holds, whatever comes and goes."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from oxygen.serving.arrivals import Burst, EveryN
from oxygen.serving.engine_config import ample_slots
from oxygen.serving.scheduler import Limits, Mode, Wanted
from tests.oxygen.serving.worlds import LONGEST, STOP, Frame, Texts, World, play, worlds

all_modes = st.sampled_from(list(Mode))
language_modes = st.sampled_from([mode for mode in Mode if mode is not Mode.ACTIONS])


@given(worlds(), all_modes)
def test_no_slot_leaks_or_is_held_twice_and_no_batch_is_too_large(world, mode):
    for scheduler, frame in play(world, mode):
        slots = [request.slot for request in scheduler.alive]
        assert len(set(slots)) == len(slots)
        assert len(slots) + scheduler.free_slots == world.limits.slots
        for stretch in frame.plan.stretches:
            assert 0 < len(set(stretch.rows)) == len(stretch.rows) <= stretch.batch
            assert stretch.batch <= max(world.limits.rows, world.limits.streams)
            assert all(0 <= slot < world.limits.slots for slot in stretch.rows)
    for stream in range(world.limits.streams):
        scheduler.cancel(stream)
    assert scheduler.free_slots == world.limits.slots


@given(worlds(), all_modes)
def test_every_request_ends_exactly_once(world, mode):
    """Those that are alive when nobody asks for anything any more have ended soon after."""
    born, ends = [], []
    quiet = Frame(present=frozenset(), ending=frozenset(), steps=1)
    rounds = -(-world.limits.slots // world.limits.rows)
    drained = dataclasses.replace(world, frames=world.frames + (quiet,) * rounds * LONGEST)
    for _, frame in play(drained, mode):
        born += frame.plan.born
        ends += frame.plan.dropped
        ends += [ended.identity for ended in frame.committed.ended]
        ends += frame.cancelled
    assert frame.left == ()
    assert len(set(born)) == len(born)
    assert len(ends) == len(set(ends))
    assert set(ends) == set(born)


@given(worlds())
def test_with_ample_slots_no_request_is_dropped_at_its_birth_but_for_younger_ones(world):
    """An older one of its task makes room, or, where none waits, one of a task of which two do."""
    pairs = {"tasks": len(world.tasks), "robots": world.limits.streams}
    limits = dataclasses.replace(world.limits, slots=ample_slots(rows=world.limits.rows, **pairs))
    for _, frame in play(dataclasses.replace(world, limits=limits), Mode.UNIFIED):
        kept = {(one.identity.stream, one.identity.task) for one in frame.alive}
        assert {(one.stream, one.task) for one in frame.plan.born} <= kept
        for pair in {(one.stream, one.task) for one in frame.plan.born}:
            newest = max(one.request_id for one in frame.plan.born if (one.stream, one.task) == pair)
            assert newest in {
                one.identity.request_id for one in frame.alive if one.identity.stream == pair[0]
            }


@st.composite
def crowds(draw):
    """More is asked for, for a hundred frames, than there are rows and slots for."""
    tasks = tuple(
        Wanted(
            arrivals=draw(st.builds(EveryN, st.integers(1, 2)) | st.just(Burst(n=2, every=3))),
            max_tokens=draw(st.integers(1, 3)),
            priority=draw(st.integers(0, 9)),
            stop_token=STOP,
        )
        for _ in range(draw(st.integers(2, 3)))
    )
    streams, steps = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    slots = streams * len(tasks) + draw(st.integers(0, 3))
    frame = Frame(present=frozenset(range(streams)), ending=frozenset(), steps=steps)
    return World(
        tasks=tasks,
        limits=Limits(streams=streams, slots=slots, rows=draw(st.integers(1, 2))),
        lengths=draw(st.integers(0, 2**32 - 1)),
        frames=(frame,) * 100,
    )


def bound(world, task):
    """Frames from a request's birth to its end; the scheduler's first lines say why."""
    frames_each = -(-max(other.max_tokens for other in world.tasks) // world.frames[0].steps)
    head_start = max(other.priority for other in world.tasks) - task.priority
    return head_start + (world.limits.slots - 1) * frames_each // world.limits.rows + frames_each


@given(crowds())
@settings(max_examples=50)
def test_a_request_that_is_not_dropped_ends_within_the_bound(world):
    born = {}
    for _, frame in play(world, Mode.UNIFIED):
        born |= dict.fromkeys(frame.plan.born, frame.number)
        for request in frame.alive:
            frames_lived = frame.number - born[request.identity] + 1
            assert frames_lived <= bound(world, world.tasks[request.identity.task])


@given(crowds())
@settings(max_examples=50)
def test_a_task_that_keeps_asking_has_a_text_finished_within_the_bound(world):
    """Though each of its requests may be dropped for a newer one: places in the line are inherited."""
    asking_for = {}
    for _, frame in play(world, Mode.UNIFIED):
        asking = {(request.identity.stream, request.identity.task) for request in frame.alive}
        asking_for = {pair: asking_for.get(pair, 0) + 1 for pair in asking}
        for (_, task), frames_waited in asking_for.items():
            assert frames_waited <= bound(world, world.tasks[task])
        for ended in frame.committed.ended:
            asking_for.pop((ended.identity.stream, ended.identity.task), None)


def priority(world, request):
    return world.tasks[request.identity.task].priority


def before(one, other):
    """Of two that stand equal: those born in one frame stand in the order of robots, tasks and ids."""
    return one.place.serial < other.place.serial


@given(worlds())
def test_a_request_waits_only_for_those_born_before_it_or_with_head_start(world):
    """As long as nobody has been dropped, and so nobody has inherited a place."""
    born = {}
    for _, frame in play(world, Mode.UNIFIED):
        born |= dict.fromkeys(frame.plan.born, frame.number)
        rows = frame.plan.rows
        if frame.plan.dropped:
            return
        waiting = [request for request in frame.alive if request.slot not in rows]
        running = [request for request in frame.alive if request.slot in rows]
        assert not waiting or len(rows) == world.limits.rows
        for request in waiting:
            for other in running:
                gain = priority(world, other) - priority(world, request)
                later = born[other.identity] - born[request.identity]
                assert later < gain or (later == gain and before(other, request))


@given(worlds(), language_modes)
def test_within_a_task_of_a_robot_the_older_request_begins_first(world, mode):
    begun = {}
    for _, frame in play(world, mode):
        new = [request.identity for request in frame.alive if request.slot in frame.plan.rows]
        for identity in sorted(new, key=lambda identity: identity.request_id):
            order = begun.setdefault((identity.stream, identity.task), [])
            if identity.request_id not in order:
                order.append(identity.request_id)
    assert all(order == sorted(order) for order in begun.values())


@given(worlds(), language_modes)
def test_what_has_begun_is_never_dropped(world, mode):
    begun = set()
    for _, frame in play(world, mode):
        assert not begun & set(frame.plan.dropped)
        begun |= {request.identity for request in frame.alive if request.slot in frame.plan.rows}


@given(worlds(), language_modes)
def test_a_text_ends_with_its_stop_token_or_its_limit_whatever_was_decoded_beyond(world, mode):
    texts = Texts(world.lengths)
    limits, decoded = {}, 0
    for scheduler, frame in play(world, mode):
        limits |= {request.identity: request.limit for request in frame.alive}
        decoded += sum(frame.committed.decoded.values())
        for ended in frame.committed.ended:
            length, limit = texts.length(ended.identity), limits[ended.identity]
            assert ended.stopped == (length < limit)
            assert len(ended.tokens) == min(length, limit)
            assert ended.decoded == len(ended.tokens) + ended.stopped
            assert STOP not in ended.tokens
            decoded -= ended.decoded
        decoded -= sum(len(request.tokens) for request in frame.alive if request.identity in frame.cancelled)
        if mode is not Mode.UNIFIED:
            assert not scheduler.alive, "what runs to the end is over when the query returns"
    assert mode is Mode.UNIFIED or decoded == 0


@given(worlds())
def test_without_language_nothing_is_ever_planned(world):
    for _, frame in play(world, Mode.ACTIONS):
        assert frame.plan.stretches == frame.plan.born == frame.plan.dropped == ()


@given(worlds(), language_modes)
def test_limits_of_requests_come_from_their_arrivals(world, mode):
    for _, frame in play(world, mode):
        for request in frame.alive:
            arrivals = world.tasks[request.identity.task].arrivals
            due = arrivals.due(request.identity.stream, request.identity.query)
            assert request.limit in {limit or LONGEST for limit in due}
