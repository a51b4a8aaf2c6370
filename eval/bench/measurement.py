"""Measures the configurations of a workload alternately, A B C D, then D C B A, …, so that drift cancels.

Latencies, the same in every mode. The loop has no simulator: each query follows the previous one at once.

- *Action latency*: from the start of a query until its actions are on the host.
- *Frame latency*: from the start of a query until the start of the next one, when all language of the query
  has been decoded and read back. It is the period of the control loop in its steady state, host time
  included. In `isolated`, `shared` and `parallel` the language of a query is its whole texts; in `unified`
  and `interleaved` it is k tokens of every running text. The first query of each run is not counted.
- *First token*, *whole request*: from the start of the query that requests a text until the host knows its
  first, or its last, token. Runs of other configurations in between are not counted.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from eval.bench.schedule import StageTimes
from eval.bench.workloads import BenchConfiguration


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextLatency:
    """Latencies of a finished text since its request, in milliseconds: its first token, and its last."""

    first_token_ms: float
    request_ms: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryTimes:
    """Latencies, in milliseconds, and results of one query of all robots.

    Attributes:
        actions_sha256: Digest of the actions of all robots.
        action_ms: Action latency.
        frame_ms: Frame latency.
        tokens: Tokens decoded, of all robots.
        decode_steps: Decode steps of each text in modes `unified` and `interleaved`; 0 in the other modes.
        submitted: Texts requested in this query.
        dropped: Texts dropped in this query.
        finished: Texts finished in this query.
    """

    actions_sha256: str
    action_ms: float
    frame_ms: float
    tokens: int
    decode_steps: int
    submitted: int
    dropped: int
    finished: Sequence[TextLatency]


Run = Sequence[QueryTimes]
"""Queries of one configuration, back to back."""


class BenchRunner(Protocol):
    """Runs one configuration. Its stream of queries continues from run to run."""

    @property
    def configuration(self) -> BenchConfiguration:
        """The configuration it runs."""

    def run(self, queries: int) -> Run:
        """Answer `queries` queries back to back; the device is idle before and after."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repetitions:
    """How often each configuration is measured.

    Attributes:
        count: Runs of each configuration.
        queries: Queries counted in a run; one more precedes them.
        warm_up: Queries of each configuration before the first run: enough to fill the longest pipeline.
    """

    count: int
    queries: int
    warm_up: int

    @property
    def total_queries(self) -> int:
        """Queries of one configuration, warm-up included."""
        return self.warm_up + self.count * self.queries_per_run

    @property
    def queries_per_run(self) -> int:
        """Queries in a run, the uncounted first one included."""
        return 1 + self.queries

    def counted_slice(self, repetition: int) -> slice:
        """The counted queries of one repetition, within all queries of a configuration."""
        start = self.warm_up + repetition * self.queries_per_run + 1
        return slice(start, start + self.queries)


StageTimesByConfiguration = Mapping[BenchConfiguration, StageTimes]
"""Stage times of each configuration, in one repetition."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurements:
    """Measured times of one workload.

    Attributes:
        runs: Of each configuration, one per repetition.
        stages: Stage times of each configuration, one per repetition.
        actions: Of each configuration, the digest of every query's actions, warm-up included.
    """

    runs: Mapping[BenchConfiguration, Sequence[Run]]
    stages: Sequence[StageTimesByConfiguration]
    actions: Mapping[BenchConfiguration, Sequence[str]]


def run_order(runners: int, repetition: int) -> list[int]:
    """Indices of the runners in the order they run: forwards in even repetitions, backwards in odd ones."""
    forwards = list(range(runners))
    return forwards if repetition % 2 == 0 else forwards[::-1]


def measure(
    runners: Sequence[BenchRunner],
    stages: Callable[[], StageTimesByConfiguration],
    repetitions: Repetitions,
    advance: Callable[[], None] = lambda: None,
) -> Measurements:
    """Warm all runners up, run them alternately, and time the stages alone after each repetition.

    Args:
        runners: One per configuration.
        stages: Times every program alone.
        repetitions: How often.
        advance: Called after each run and each warm-up; an exception from it ends the measurement.
    """
    actions: dict[BenchConfiguration, list[str]] = {}
    for runner in runners:
        actions[runner.configuration] = _digests(runner.run(repetitions.warm_up))
        advance()
    runs: dict[BenchConfiguration, list[Run]] = {runner.configuration: [] for runner in runners}
    times = []
    for repetition in range(repetitions.count):
        for index in run_order(len(runners), repetition):
            runner = runners[index]
            run = runner.run(repetitions.queries_per_run)
            runs[runner.configuration].append(run[1:])
            actions[runner.configuration] += _digests(run)
            advance()
        times.append(stages())
    return Measurements(runs=runs, stages=times, actions=actions)


def _digests(run: Run) -> list[str]:
    return [query.actions_sha256 for query in run]
