"""Everything that comes at a scheduler from outside, and what it then does, frame by frame."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from oxygen.serving.language import Burst, EveryN, LanguageTask, Poisson, RandomLength
from oxygen.serving.requests import RequestState
from oxygen.serving.scheduler import Scheduler

STOP = 1
LONGEST = 9

regular = st.one_of(
    st.builds(EveryN, st.integers(1, 4)),
    st.builds(Burst, n=st.integers(1, 4), every=st.integers(1, 5)),
    st.builds(Poisson, rate=st.floats(0.1, 3), seed=st.integers(0, 99)),
)
random_length = st.builds(
    RandomLength,
    arrivals=regular,
    min_tokens=st.integers(1, 3),
    max_tokens=st.integers(3, LONGEST),
    seed=st.just(0),
)
wanted = st.fixed_dictionaries(
    {
        "arrivals": regular | random_length,
        "max_tokens": st.just(LONGEST),
        "priority": st.integers(0, 6),
    }
)


@dataclasses.dataclass(frozen=True)
class Step:
    """Who takes part in an engine step, whose episode ends after it, and how many tokens it decodes."""

    present: frozenset[int]
    ending: frozenset[int]
    tokens: int


@dataclasses.dataclass(frozen=True)
class World:
    """Everything that comes at a scheduler from outside."""

    wanted: tuple[Mapping[str, Any], ...]
    robots: int
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
    robots = draw(st.integers(1, 3))
    slots = robots * len(asked) + draw(st.integers(0, 4))
    some = st.frozensets(st.integers(0, robots - 1))
    step = st.builds(Step, present=some, ending=some | st.just(frozenset()), tokens=st.integers(1, 4))
    return World(
        wanted=asked,
        robots=robots,
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
        return (self._lengths // (request.request_id + 3 * request.robot + 1)) % 12

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


@dataclasses.dataclass(frozen=True)
class Happened:
    """One engine step: what was planned, who was active then and in which order, what was written, and who
    was finished by it, cancelled after it, and left."""

    number: int
    plan: object
    active: tuple
    order: dict
    new_tokens: dict
    finished: tuple
    cancelled: tuple
    left: tuple

    @property
    def slots(self):
        return [slot for job in self.plan.jobs for slot in job.slots]

    @property
    def rows(self):
        return [request for job in self.plan.jobs for request in job.rows]


def play(world, mode):
    """Every step of a world, planned, run and committed. Episodes end, and begin again, in between."""
    scheduler = Scheduler(
        mode=mode, tasks=world.tasks, robots=world.robots, slots=world.slots, rows=world.rows
    )
    texts = FakeTexts(world.lengths)
    queries = dict.fromkeys(range(world.robots), 0)
    for number, step in enumerate(world.steps):
        plan = scheduler.plan({robot: queries[robot] for robot in step.present})
        active = scheduler.active
        order = {request: request.order for request in active}
        new_tokens = scheduler.commit(texts.run(plan, step.tokens))
        cancelled = []
        for robot in step.present:
            queries[robot] += 1
        finished = tuple(request for request in active if request.state is RequestState.FINISHED)
        for robot in step.ending:
            cancelled += scheduler.cancel(robot)
        left = scheduler.active
        yield scheduler, Happened(number, plan, active, order, new_tokens, finished, tuple(cancelled), left)
