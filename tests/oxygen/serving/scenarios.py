"""Robots that come and go, episodes that end, texts that are due: what happens to a policy, and a log."""

import dataclasses

from hypothesis import strategies as st

from oxygen.serving.language import Arrivals, Burst, EveryN, LanguageTask, Poisson, RandomLength
from oxygen.serving.requests import Sampling
from oxygen.serving.scheduler import Budget, Deadline, FixedTokens

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
    slots=st.integers(6, 16),
    rows=st.integers(1, 12),
    budget=budgets,
)


class Log:
    """What the robots were given, by robot, episode and query; texts by robot, episode and request."""

    def __init__(self, policy):
        self._policy = policy
        self._episodes = [0] * ROBOTS
        self.actions, self.texts, self.requested, self.ends = {}, {}, [], []
        for robot in range(ROBOTS):
            policy.reset(robot, seed_of(robot, 0))

    def note_actions(self, robot, actions):
        name = (robot, self._episodes[robot])
        number = len([key for key in self.actions if key[:2] == name])
        self.actions[(*name, number)] = actions.tobytes()

    def note(self, robot, reply):
        if reply is not None:
            self.requested += self._names(robot, reply.requested)
            self.ends += self._names(robot, reply.dropped)
            self._note_texts(robot, reply.finished)

    def end(self, robot):
        end = self._policy.finish(robot)
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


def play(policy, frames, observe):
    """All frames, with episodes that end and begin anew; the last ones are ended, too."""
    log = Log(policy)
    for number, frame in enumerate(frames):
        seen = {robot: observe(10 * number + robot) for robot in frame.present}
        for robot, actions in policy.act(seen).items():
            log.note_actions(robot, actions)
        for robot in frame.ending if frame.early else ():
            log.end(robot)
        for robot, reply in policy.complete().items():
            log.note(robot, reply)
        for robot in frame.ending if not frame.early else ():
            log.end(robot)
    for robot in range(ROBOTS):
        log.end(robot)
    return log


def seed_of(robot, episode):
    return 2**40 * robot + 7 * episode
