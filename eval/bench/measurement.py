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
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax

from eval.bench.schedule import StageTimes
from eval.bench.workloads import BenchConfiguration
from oxygen.model.inputs import ModelInput
from oxygen.serving.requests import Request
from oxygen.serving.runner import Runner

_CALLS = 3


class StageTimer:
    """Times the programs of a runner on a separate KV pool."""

    def __init__(self, runner: Runner, inputs: ModelInput, suffix: Sequence[int]) -> None:
        self._runner = runner
        self._inputs = inputs
        self._suffix = tuple(suffix)
        self._pool, self._texts = runner.empty()
        self._prefix = runner.prefill(inputs)

    def times(self) -> StageTimes:
        """Milliseconds of each program; the device is idle before and after."""
        runner, zeros = self._runner, [0] * self._runner.sizes.robots
        return self.language(
            prefill=_mean_ms(lambda: runner.prefill(self._inputs)),
            denoise=_mean_ms(lambda: runner.denoise(self._prefix, zeros, zeros)),
            guided_denoise=_mean_ms(
                lambda: runner.guided_denoise(self._prefix, zeros, zeros, runner.unguided())
            ),
        )

    def language(self, *, prefill: float, denoise: float, guided_denoise: float) -> StageTimes:
        """Milliseconds of each program; the three given ones are not measured again."""
        runner = self._runner
        return StageTimes(
            prefill=prefill,
            denoise=denoise,
            guided_denoise=guided_denoise,
            fork=_mean_ms(lambda: self._fork(min(runner.sizes.forks[-1], runner.sizes.slots))),
            decode={batch: self._decode_ms(batch) for batch in runner.sizes.rows},
        )

    def _fork(self, texts: int) -> Any:
        """Start texts in the first slots, a full fork at a time."""
        batch = self._runner.sizes.forks[-1]
        for start in range(0, texts, batch):
            slots = range(start, min(start + batch, texts))
            new = self._runner.new_requests([self._request(slot) for slot in slots])
            self._pool, self._texts = self._runner.fork(self._prefix, new, self._pool, self._texts)
        return self._texts

    def _request(self, slot: int) -> Request:
        robot = slot % self._runner.sizes.robots
        return Request(slot=slot, robot=robot, suffix=self._suffix, query=0, task=0)

    def _decode_ms(self, batch: int) -> float:
        """Mean time of one decode step, over all steps of a full batch of texts, queued at once."""
        size = self._runner.sizes
        slots = range(min(batch, size.slots))
        jax.block_until_ready(self._fork(len(slots)))
        began = time.perf_counter()
        for _ in range(size.limit):
            self._pool, self._texts = self._runner.decode(slots, self._pool, self._texts, batch=batch)
        jax.block_until_ready(self._texts)
        return 1e3 * (time.perf_counter() - began) / size.limit


class ConfigurationStageTimer:
    """Times the programs of several configurations, which share prefill and denoise."""

    def __init__(
        self, runners: Mapping[BenchConfiguration, Runner], inputs: ModelInput, suffix: Sequence[int]
    ) -> None:
        self._runners = runners
        self._timers = {runner: StageTimer(runner, inputs, suffix) for runner in runners.values()}

    def times(self) -> Mapping[BenchConfiguration, StageTimes]:
        """Milliseconds of each configuration's programs."""
        first, *others = self._timers
        shared = self._timers[first].times()
        by_runner = {first: shared} | {
            runner: self._timers[runner].language(
                prefill=shared.prefill, denoise=shared.denoise, guided_denoise=shared.guided_denoise
            )
            for runner in others
        }
        return {configuration: by_runner[runner] for configuration, runner in self._runners.items()}


def _mean_ms(program: Callable[[], Any]) -> float:
    """Mean milliseconds of a call, each waited for."""
    began = time.perf_counter()
    for _ in range(_CALLS):
        jax.block_until_ready(program())
    return 1e3 * (time.perf_counter() - began) / _CALLS


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
