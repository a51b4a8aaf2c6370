"""Configurations run in turns, forwards and backwards, and nothing is counted before they are warm."""

import pytest

from eval.bench.measurement import measure
from eval.bench.workloads import BenchConfiguration
from oxygen.serving.scheduler import Mode
from tests.eval.bench.conftest import STAGES, query, workload

WORKLOAD = workload(repetitions=3, queries=2, warm_up_queries=5)


class LoggedRunner:
    """A runner that logs its runs, and answers each query with its index."""

    def __init__(self, name: Mode, log: list[tuple[str, int]]) -> None:
        self.configuration = BenchConfiguration(mode=name)
        self._log = log
        self._answered = 0

    def run(self, queries: int):
        self._log.append((self.configuration.mode.value, queries))
        self._answered += queries
        stream = range(self._answered - queries, self._answered)
        return [query(float(n), actions=str(n)) for n in stream]


def test_modes_are_interleaved_run_by_run():
    log: list[tuple[str, int]] = []
    runners = [LoggedRunner(mode, log) for mode in (Mode.ACTIONS, Mode.ISOLATED, Mode.UNIFIED)]

    def stages():
        log.append(("stages", 0))
        return {runner.configuration: STAGES for runner in runners}

    measured = measure(runners, stages, WORKLOAD)
    a, b, c = "actions", "isolated", "unified"
    assert log[:3] == [(a, 5), (b, 5), (c, 5)]
    runs = [name for name, _ in log[3:]]
    assert runs == [a, b, c, "stages", c, b, a, "stages", a, b, c, "stages"]
    assert [samples.stages for samples in measured.values()] == [[STAGES] * 3] * 3


def test_warm_up_and_the_first_query_of_a_run_are_not_counted_and_actions_of_all_are_kept():
    runner = LoggedRunner(Mode.ACTIONS, [])
    (samples,) = measure([runner], lambda: {runner.configuration: STAGES}, WORKLOAD).values()
    assert [[one.frame_ms for one in run] for run in samples.runs] == [[6, 7], [9, 10], [12, 13]], (
        "after five queries of warm-up, and an uncounted one before every run"
    )
    assert samples.actions == [str(n) for n in range(WORKLOAD.total_queries)]


def test_an_interrupt_ends_the_measurement_after_the_current_run():
    log: list[tuple[str, int]] = []

    def interrupted():
        if len(log) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure([LoggedRunner(Mode.ACTIONS, log)], dict, WORKLOAD, interrupted)
    assert len(log) == 3
