"""Everything that comes at a scheduler from outside, and what it then does, frame by frame."""

import dataclasses

from hypothesis import strategies as st

from oxygen.serving.arrivals import Burst, EveryN, Poisson, RandomLength
from oxygen.serving.scheduler import Limits, Scheduler, Wanted

STOP = 1
LONGEST = 9

regular = st.one_of(
    st.builds(EveryN, st.integers(1, 4)),
    st.builds(Burst, n=st.integers(1, 4), every=st.integers(1, 5)),
    st.builds(Poisson, rate=st.floats(0.1, 3), seed=st.integers(0, 99)),
)
random_length = st.builds(
    RandomLength, arrivals=regular, least=st.integers(1, 3), most=st.integers(3, LONGEST), seed=st.just(0)
)
wanted = st.builds(
    Wanted,
    arrivals=regular | random_length,
    max_tokens=st.just(LONGEST),
    priority=st.integers(0, 6),
    stop_token=st.just(STOP),
)


@dataclasses.dataclass(frozen=True)
class Frame:
    """Who takes part in a frame, whose episode ends after it, and how many tokens it decodes."""

    present: frozenset[int]
    ending: frozenset[int]
    steps: int


@dataclasses.dataclass(frozen=True)
class World:
    """Everything that comes at a scheduler from outside."""

    tasks: tuple[Wanted, ...]
    limits: Limits
    lengths: int
    frames: tuple[Frame, ...]


@st.composite
def worlds(draw, frames=25):
    tasks = tuple(draw(st.lists(wanted, min_size=1, max_size=3)))
    streams = draw(st.integers(1, 3))
    slots = streams * len(tasks) + draw(st.integers(0, 4))
    limits = Limits(streams=streams, slots=slots, rows=draw(st.integers(1, slots)))
    some = st.frozensets(st.integers(0, streams - 1))
    frame = st.builds(Frame, present=some, ending=some | st.just(frozenset()), steps=st.integers(1, 4))
    return World(
        tasks=tasks,
        limits=limits,
        lengths=draw(st.integers(0, 2**32 - 1)),
        frames=tuple(draw(st.lists(frame, min_size=1, max_size=frames))),
    )


class Texts:
    """What a model would write: every request has a length of its own, after which comes the stop token."""

    def __init__(self, lengths):
        self._lengths = lengths
        self._written = {}
        self._owner = {}

    def length(self, identity):
        return (self._lengths // (identity.request_id + 3 * identity.stream + 1)) % 12

    def run(self, plan, steps):
        for stretch in plan.stretches:
            for birth in stretch.births:
                self._written[birth.slot], self._owner[birth.slot] = [], birth.identity
            for slot in stretch.rows:
                for _ in range(stretch.steps if stretch.to_the_end else min(steps, stretch.steps)):
                    tokens = self._written[slot]
                    over = len(tokens) == self.length(self._owner[slot])
                    tokens.append(STOP if over else 2 + len(tokens))
        return {slot: self._written[slot] for slot in plan.rows}


@dataclasses.dataclass(frozen=True)
class Happened:
    """One frame: what was planned, who was alive then, what it brought, what its end cut off, who is left."""

    number: int
    plan: object
    alive: tuple
    committed: object
    cancelled: tuple
    left: tuple


def play(world, mode):
    """Every frame of a world, planned, run and committed. Episodes end, and begin again, in between."""
    scheduler = Scheduler(mode=mode, wanted=world.tasks, limits=world.limits)
    texts = Texts(world.lengths)
    queries = dict.fromkeys(range(world.limits.streams), 0)
    for number, frame in enumerate(world.frames):
        plan = scheduler.plan({stream: queries[stream] for stream in frame.present})
        alive = tuple(dataclasses.replace(request) for request in scheduler.alive)
        committed = scheduler.commit(texts.run(plan, frame.steps))
        cancelled = []
        for stream in frame.present:
            queries[stream] += 1
        for stream in frame.ending:
            cancelled += [request.identity for request in scheduler.cancel(stream)]
        yield scheduler, Happened(number, plan, alive, committed, tuple(cancelled), scheduler.alive)
    # Ids go on over these ends of episodes, so that a request has one name throughout.
