"""Measures the configurations of a workload in turns.

The loop has no simulator: each query follows the previous one at once. The first query of each run is not
counted. docs/bench.md defines the latencies.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from eval.bench.serving import SUFFIX, PolicyRunner, QueryTimes
from eval.bench.workloads import BenchConfiguration, Workload
from oxygen.model.inputs import ModelInput
from oxygen.serving.requests import Request
from oxygen.serving.runner import Runner

_CALLS = 3


def acting_ms(runner: Runner, inputs: ModelInput) -> dict[str, float]:
    """Milliseconds of `prefill`, `denoise` and `guided_denoise`; the device is idle before and after."""
    prefix, zeros = jax.block_until_ready(runner.prefill(inputs)), [0] * runner.sizes.robots
    return {
        "prefill": _mean_ms(lambda: runner.prefill(inputs)),
        "denoise": _mean_ms(lambda: runner.denoise(prefix, zeros, zeros)),
        "guided_denoise": _mean_ms(lambda: runner.denoise(prefix, zeros, zeros, runner.unguided())),
    }


def language_ms(runner: Runner, inputs: ModelInput) -> dict[str, float]:
    """Milliseconds of `fork`, and of `decode_B` for each batch size B, on a separate KV pool.

    A decode step is the mean over all steps of a full batch of texts, queued at once. The device is idle
    before and after.
    """
    sizes = runner.sizes
    prefix, (pool, texts) = jax.block_until_ready((runner.prefill(inputs), runner.empty()))

    def fork(count: int) -> Any:
        """Start texts in the first slots, a full fork at a time."""
        nonlocal pool, texts
        requests = [
            Request(slot=slot, robot=slot % sizes.robots, suffix=SUFFIX, query=0, task=0)
            for slot in range(count)
        ]
        for start in range(0, count, sizes.forks[-1]):
            new = runner.new_requests(requests[start : start + sizes.forks[-1]])
            pool, texts = runner.fork(prefix, new, pool, texts)
        return texts

    found = {"fork": _mean_ms(lambda: fork(min(sizes.forks[-1], sizes.slots)))}
    for batch in sizes.rows:
        slots = range(min(batch, sizes.slots))
        jax.block_until_ready(fork(len(slots)))
        began = time.perf_counter()
        for _ in range(sizes.limit):
            pool, texts = runner.decode(slots, pool, texts, batch=batch)
        jax.block_until_ready(texts)
        found[f"decode_{batch}"] = 1e3 * (time.perf_counter() - began) / sizes.limit
    return found


def _mean_ms(program: Callable[[], Any]) -> float:
    """Mean milliseconds of a call, each waited for."""
    began = time.perf_counter()
    for _ in range(_CALLS):
        jax.block_until_ready(program())
    return 1e3 * (time.perf_counter() - began) / _CALLS


StageTimes = Mapping[str, float]
"""Milliseconds of each program alone: `prefill`, `denoise`, `guided_denoise`, `fork`, `decode_B`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """All that is measured of one configuration.

    Attributes:
        runs: Its counted queries, by repetition.
        stages: Times of its programs, by repetition.
        actions: The digest of every query's actions, warm-up included.
    """

    runs: Sequence[Sequence[QueryTimes]]
    stages: Sequence[StageTimes]
    actions: Sequence[str]

    def by_query(self, field: str) -> np.ndarray:
        """A number of each query, [repetition, query]."""
        return np.array([[getattr(query, field) for query in run] for run in self.runs])

    def by_text(self, field: str) -> list[float]:
        """A latency of each finished text, milliseconds."""
        return [value for run in self.runs for query in run for value in getattr(query, field)]


_Name = TypeVar("_Name")
_Result = TypeVar("_Result")


def in_turns(
    programs: Mapping[_Name, Callable[[], _Result]], repetitions: int
) -> Iterator[Mapping[_Name, list[_Result]]]:
    """Call programs in turns, A B C, then C B A, …, so that drift cancels.

    Yields the results so far after each repetition.
    """
    results: dict[_Name, list[_Result]] = {name: [] for name in programs}
    for repetition in range(repetitions):
        for name in list(programs)[:: 1 if repetition % 2 == 0 else -1]:
            results[name].append(programs[name]())
        yield results


def measure(
    runners: Sequence[PolicyRunner],
    stages: Callable[[], Mapping[BenchConfiguration, StageTimes]],
    workload: Workload,
    advance: Callable[[], None] = lambda: None,
) -> dict[BenchConfiguration, Samples]:
    """Warm all runners up, run them in turns, and time the stages alone after each repetition.

    Args:
        runners: One per configuration.
        stages: Times every program of each configuration alone.
        workload: Says how often.
        advance: Called after each run and each warm-up; an exception from it ends the measurement.
    """
    actions: dict[BenchConfiguration, list[str]] = {runner.configuration: [] for runner in runners}
    times: dict[BenchConfiguration, list[StageTimes]] = {each: [] for each in actions}

    def run(runner: PolicyRunner, queries: int) -> Sequence[QueryTimes]:
        answered = runner.run(queries)
        actions[runner.configuration] += [query.actions_sha256 for query in answered]
        advance()
        return answered[1:]

    for runner in runners:
        run(runner, workload.warm_up_queries)
    turns = {each.configuration: functools.partial(run, each, workload.queries_per_run) for each in runners}
    samples: dict[BenchConfiguration, Samples] = {}
    for runs in in_turns(turns, workload.repetitions):
        for each, of_programs in stages().items():
            times[each].append(of_programs)
            samples[each] = Samples(runs=runs[each], stages=times[each], actions=actions[each])
    return samples
