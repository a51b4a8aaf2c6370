"""Contenders take turns, forwards and backwards, and nothing counts before they are warm."""

import pytest

from eval.bench.measurement import Turns, measure, order
from eval.bench.workloads import Contender
from oxygen.serving.scheduler import Mode
from tests.eval.bench.conftest import STAGES, query

TURNS = Turns(repetitions=3, queries=2, warm_up=5)


class LoggedLane:
    """A contender that notes its turns and answers each query with the number of its place in the stream."""

    def __init__(self, name: Mode, log: list[tuple[str, int]]) -> None:
        self.contender = Contender(mode=name)
        self._log = log
        self._answered = 0

    def run(self, queries: int):
        self._log.append((self.contender.mode.value, queries))
        self._answered += queries
        stream = range(self._answered - queries, self._answered)
        return [query(float(n), tokens=0, actions=str(n)) for n in stream]


def test_modes_are_interleaved_run_by_run():
    log: list[tuple[str, int]] = []
    lanes = [LoggedLane(mode, log) for mode in (Mode.ACTIONS, Mode.ISOLATED, Mode.UNIFIED)]

    def stages():
        log.append(("stages", 0))
        return {lane.contender: STAGES for lane in lanes}

    measured = measure(lanes, stages, TURNS)
    a, b, c = "actions", "isolated", "unified"
    assert log[:3] == [(a, 5), (b, 5), (c, 5)]
    turns = [name for name, _ in log[3:]]
    assert turns == [a, b, c, "stages", c, b, a, "stages", a, b, c, "stages"]
    assert len(measured.stages) == 3


def test_what_counts_is_the_window_that_the_prediction_is_made_for():
    lane = LoggedLane(Mode.ACTIONS, [])
    measured = measure([lane], lambda: {lane.contender: STAGES}, TURNS)
    stream = list(range(TURNS.total))
    assert len(stream) == 5 + 3 * (1 + 2), "a query that does not count goes before those of every turn"
    for repetition, run in enumerate(measured.runs[lane.contender]):
        assert [one.frame_ms for one in run] == stream[TURNS.window(repetition)]


def test_the_actions_of_every_query_are_kept_and_those_of_the_warm_up_too():
    lane = LoggedLane(Mode.ACTIONS, [])
    measured = measure([lane], lambda: {lane.contender: STAGES}, TURNS)
    assert measured.actions[lane.contender] == [str(n) for n in range(TURNS.total)]


def test_every_place_in_the_order_is_taken_as_often_over_two_repetitions():
    assert [sum(places) for places in zip(order(4, 0), order(4, 1), strict=True)] == [3] * 4


def test_an_interrupt_ends_the_measurement_at_the_next_turn():
    log: list[tuple[str, int]] = []

    def interrupted():
        if len(log) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure([LoggedLane(Mode.ACTIONS, log)], dict, TURNS, interrupted)
    assert len(log) == 3
