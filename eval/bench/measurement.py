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
import numpy as np

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

    def acting_ms(self) -> dict[str, float]:
        """Milliseconds of `prefill`, `denoise` and `guided_denoise`; the device is idle before and after."""
        runner, zeros = self._runner, [0] * self._runner.sizes.robots
        return {
            "prefill": _mean_ms(lambda: runner.prefill(self._inputs)),
            "denoise": _mean_ms(lambda: runner.denoise(self._prefix, zeros, zeros)),
            "guided_denoise": _mean_ms(
                lambda: runner.guided_denoise(self._prefix, zeros, zeros, runner.unguided())
            ),
        }

    def language_ms(self) -> dict[str, float]:
        """Milliseconds of `fork`, and of `decode_B` for each batch size B."""
        sizes = self._runner.sizes
        texts = min(sizes.forks[-1], sizes.slots)
        return {
            "fork": _mean_ms(lambda: self._fork(texts)),
            **{f"decode_{batch}": self._decode_ms(batch) for batch in sizes.rows},
        }

    def _fork(self, texts: int) -> Any:
        """Start texts in the first slots, a full fork at a time."""
        sizes = self._runner.sizes
        requests = [
            Request(slot=slot, robot=slot % sizes.robots, suffix=self._suffix, query=0, task=0)
            for slot in range(texts)
        ]
        for start in range(0, texts, sizes.forks[-1]):
            new = self._runner.new_requests(requests[start : start + sizes.forks[-1]])
            self._pool, self._texts = self._runner.fork(self._prefix, new, self._pool, self._texts)
        return self._texts

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


def _mean_ms(program: Callable[[], Any]) -> float:
    """Mean milliseconds of a call, each waited for."""
    began = time.perf_counter()
    for _ in range(_CALLS):
        jax.block_until_ready(program())
    return 1e3 * (time.perf_counter() - began) / _CALLS


StageTimes = Mapping[str, float]
"""Milliseconds of each program alone: `prefill`, `denoise`, `guided_denoise`, `fork`, `decode_B`."""


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
        first_token_ms: Latency of the first token of each text finished in this query, since its request.
        request_ms: Latency of its last token, likewise.
    """

    actions_sha256: str
    action_ms: float
    frame_ms: float
    tokens: int
    decode_steps: int
    submitted: int
    dropped: int
    first_token_ms: Sequence[float]
    request_ms: Sequence[float]


class BenchRunner(Protocol):
    """Runs one configuration. Its stream of queries continues from run to run."""

    @property
    def configuration(self) -> BenchConfiguration:
        """The configuration it runs."""

    def run(self, queries: int) -> Sequence[QueryTimes]:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """All that is measured of one configuration.

    Attributes:
        runs: Its counted queries, by repetition.
        stages: Times of its programs, by repetition.
        actions: The digest of every query's actions, warm-up included.
    """

    runs: list[Sequence[QueryTimes]] = dataclasses.field(default_factory=list)
    stages: list[StageTimes] = dataclasses.field(default_factory=list)
    actions: list[str] = dataclasses.field(default_factory=list)

    def by_query(self, field: str) -> np.ndarray:
        """A number of each query, [repetition, query]."""
        return np.array([[getattr(query, field) for query in run] for run in self.runs])

    def by_text(self, field: str) -> list[float]:
        """A latency of each finished text, milliseconds."""
        return [value for run in self.runs for query in run for value in getattr(query, field)]


def run_order(runners: int, repetition: int) -> list[int]:
    """Indices of the runners in the order they run: forwards in even repetitions, backwards in odd ones."""
    forwards = list(range(runners))
    return forwards if repetition % 2 == 0 else forwards[::-1]


def measure(
    runners: Sequence[BenchRunner],
    stages: Callable[[], Mapping[BenchConfiguration, StageTimes]],
    repetitions: Repetitions,
    advance: Callable[[], None] = lambda: None,
) -> dict[BenchConfiguration, Samples]:
    """Warm all runners up, run them alternately, and time the stages alone after each repetition.

    Args:
        runners: One per configuration.
        stages: Times every program of each configuration alone.
        repetitions: How often.
        advance: Called after each run and each warm-up; an exception from it ends the measurement.
    """
    samples = {runner.configuration: Samples() for runner in runners}

    def run(runner: BenchRunner, queries: int) -> Sequence[QueryTimes]:
        answered = runner.run(queries)
        samples[runner.configuration].actions.extend(query.actions_sha256 for query in answered)
        advance()
        return answered

    for runner in runners:
        run(runner, repetitions.warm_up)
    for repetition in range(repetitions.count):
        for index in run_order(len(runners), repetition):
            counted = run(runners[index], repetitions.queries_per_run)[1:]
            samples[runners[index].configuration].runs.append(counted)
        for configuration, times in stages().items():
            samples[configuration].stages.append(times)
    return samples
