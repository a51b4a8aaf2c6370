"""Runs the contenders of a workload in turns: A B C D, then D C B A, and so on, so that drift cancels.

Clocks, the same in every mode. The loop has no world in it: a query follows the one before at once.

- *Action latency*: from the query's start until its actions are on the host.
- *Frame latency*: from the query's start until the next query's start, which is when all language that
  belongs to the query has been decoded and read back. It is the period of the control loop in its steady
  state, and so counts whatever the host does. In `isolated`, `shared` and `parallel` a query's language is
  its texts to their ends; in `unified` it is k tokens of every text under way. A turn begins with one query
  that does not count.
- *First token*, *whole request*: from the start of the query a text is born in until the host knows its
  first, or its last, token. The turns of other contenders in between are not counted.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from eval.bench.schedule import StageTimes
from eval.bench.workloads import Contender


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """A finished text: milliseconds from its birth to its first token and to its end."""

    first_token_ms: float
    request_ms: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """What one query took, in milliseconds, and brought, over all robots.

    `actions_sha256` is of the bytes of all robots' actions: whoever is asked the same must answer the same.
    `decode_steps` are those that the frame was given; 0 where texts run to their end.
    """

    actions_sha256: str
    action_ms: float
    frame_ms: float
    tokens: int
    decode_steps: int
    born: int
    dropped: int
    finished: Sequence[Text]


Run = Sequence[Query]
"""Queries of one contender, back to back."""


class Lane(Protocol):
    """One contender, ready to run. Its stream of queries goes on from run to run."""

    @property
    def contender(self) -> Contender:
        """What runs here."""

    def run(self, queries: int) -> Run:
        """Answer as many queries, back to back; the device is idle before and after."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turns:
    """How often everything is measured.

    Attributes:
        repetitions: Turns of each contender.
        queries: Queries in a turn that count; one more goes before them.
        warm_up: Queries of each contender before anything counts: as many as fill the longest pipeline.
    """

    repetitions: int
    queries: int
    warm_up: int

    @property
    def total(self) -> int:
        """Queries of a contender's stream."""
        return self.warm_up + self.repetitions * self.turn

    @property
    def turn(self) -> int:
        """Queries in a turn, the first one included."""
        return 1 + self.queries

    def window(self, repetition: int) -> slice:
        """The queries of one repetition that count, within the stream."""
        start = self.warm_up + repetition * self.turn + 1
        return slice(start, start + self.queries)


StagesOf = Mapping[Contender, StageTimes]
"""Times of each contender's programs by themselves, in one repetition."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What came of it.

    Attributes:
        runs: Of every contender, one for each repetition.
        stages: Times of every contender's programs by themselves, one for each repetition.
        actions: Of every contender, the digest of each query's actions, from the first of the warm-up on.
    """

    runs: Mapping[Contender, Sequence[Run]]
    stages: Sequence[StagesOf]
    actions: Mapping[Contender, Sequence[str]]


def order(lanes: int, repetition: int) -> list[int]:
    """Whose turn it is: forwards in even repetitions, backwards in odd ones."""
    forwards = list(range(lanes))
    return forwards if repetition % 2 == 0 else forwards[::-1]


def measure(
    lanes: Sequence[Lane],
    stages: Callable[[], StagesOf],
    turns: Turns,
    advance: Callable[[], None] = lambda: None,
) -> Measured:
    """Warm every lane up, then run all of them in turns, with the stages by themselves between repetitions.

    Args:
        lanes: The contenders.
        stages: Times every program by itself.
        turns: How often.
        advance: Called after each turn, warm-up included; what it raises ends the measurement.
    """
    actions: dict[Contender, list[str]] = {}
    for lane in lanes:
        actions[lane.contender] = _digests(lane.run(turns.warm_up))
        advance()
    runs: dict[Contender, list[Run]] = {lane.contender: [] for lane in lanes}
    times = []
    for repetition in range(turns.repetitions):
        for index in order(len(lanes), repetition):
            lane = lanes[index]
            run = lane.run(turns.turn)
            runs[lane.contender].append(run[1:])
            actions[lane.contender] += _digests(run)
            advance()
        times.append(stages())
    return Measured(runs=runs, stages=times, actions=actions)


def _digests(run: Run) -> list[str]:
    return [query.actions_sha256 for query in run]
