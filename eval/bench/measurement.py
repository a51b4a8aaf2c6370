"""Measures the configurations of a workload in turns, and computes the fields of their rows.

The loop has no simulator: each query follows the previous one at once. The first query of each run is not
counted. docs/bench.md defines the latencies.
"""

import dataclasses
import functools
import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.stages import Compiled

from contracts.mode import BUDGETED, Mode
from eval.bench.serving import SUFFIX, PolicyRunner, QueryTimes
from eval.bench.workloads import BenchConfiguration, Workload
from eval.metrics.statistics import Interval, quantiles
from oxygen.model.config import ModelInput
from oxygen.serving.requests import Request
from oxygen.serving.runner import Runner

_LEVEL = 0.95
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


def needed_bytes(runner: Runner, mode: Mode, bucket: int) -> int | None:
    """Bytes of the largest program by its compiler, since they run one after the other; None if it is silent.

    A program counts arguments (weights and pool included), results and temporary arrays; bytes that a result
    shares with an argument count once. In `parallel` the largest of either process are added, since each has
    its own weights.
    """
    programs = runner.programs
    acting = [programs.prefill[bucket], programs.denoise[bucket, False]]
    decoding = [programs.fork[bucket, runner.sizes.forks[-1]], programs.decode[runner.sizes.rows[-1]]]
    match mode:
        case Mode.ACTIONS:
            processes = [acting]
        case Mode.PARALLEL:
            processes = [acting, [acting[0], *decoding]]
        case _:
            processes = [[*acting, *decoding]]
    sizes = [[_program_bytes(program) for program in process] for process in processes]
    return sum(map(max, sizes)) or None


def _program_bytes(program: Compiled) -> int:
    """Bytes of a program; 0 if the backend does not tell."""
    analysis = program.memory_analysis()
    if analysis is None:
        return 0
    parts = analysis.argument_size_in_bytes + analysis.temp_size_in_bytes + analysis.output_size_in_bytes
    return parts - analysis.alias_size_in_bytes


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
    """All that is measured of one configuration."""

    runs: Sequence[Sequence[QueryTimes]]  # counted queries, by repetition
    stages: Sequence[StageTimes]  # by repetition
    actions: Sequence[str]  # digest of every query's actions, warm-up included

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
    """Warm all runners up, run them in turns, and time the `stages` alone after each repetition.

    `advance` is called after each run and each warm-up; an exception from it ends the measurement.
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


Numbers = Sequence[float] | np.ndarray
"""A number of each repetition, [repetition]."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio's median over repetitions, and its interval: 95 % from six repetitions on; None for one."""

    value: float
    ci95: Interval | None


def paired_ratio(numerators: Numbers, denominators: Numbers, *, expected: Numbers | None = None) -> Ratio:
    """The median over repetitions of numerator / denominator, divided by the `expected` ratio if given.

    Drift of the machine is common to both sides of a repetition and cancels. The median and its interval are
    robust to single disturbed repetitions. No repetitions, or different numbers of them, are a ValueError.
    """
    if len(numerators) == 0 or len(numerators) != len(denominators):
        raise ValueError(f"a ratio of {len(numerators)} repetitions to {len(denominators)}")
    ratios = np.divide(numerators, denominators) / (1.0 if expected is None else expected)
    return Ratio(value=float(np.median(ratios)), ci95=_median_95(np.sort(ratios)))


def ratio_fields(
    name: str,
    numerators: Numbers,
    denominators: Numbers,
    *,
    expected: Numbers | None = None,
    interval: str | None = None,
) -> dict[str, Any]:
    """A `paired_ratio` as field `name` of a row, and its interval as field `interval`, else `NAME_ci95`."""
    ratio = paired_ratio(numerators, denominators, expected=expected)
    return {name: ratio.value, interval or f"{name}_ci95": ratio.ci95 and list(ratio.ci95)}


def _median_95(sample: np.ndarray) -> Interval | None:
    """Distribution-free interval of the median of an ascending sample; None for a single number.

    The k-th smallest and the k-th largest number enclose the median with a binomial probability. For 95 % the
    intervals of neighbouring k are interpolated (Hettmansperger and Sheather 1986). For two to five numbers
    the interval is the range of the sample, which covers the median in 50, 75, 88 and 94 % of cases.
    """
    from scipy.stats import binom

    n = len(sample)
    if n < 2:
        return None
    coverage = 1 - 2 * binom.cdf(np.arange(n), n, 0.5)  # of the k-th smallest and largest, for k from 1 to n
    outer = int(np.argmax(coverage < _LEVEL))
    if outer == 0:
        return Interval(low=float(sample[0]), high=float(sample[-1]))
    wide, narrow = coverage[outer - 1 : outer + 1]
    part = (wide - _LEVEL) / (wide - narrow)
    inwards = (n - outer) * part / (outer + (n - 2 * outer) * part)
    low = sample[outer - 1] + inwards * (sample[outer] - sample[outer - 1])
    high = sample[-outer] - inwards * (sample[-outer] - sample[-outer - 1])
    median = np.median(sample)  # rounding may put it just outside where numbers are equal
    return Interval(low=float(min(low, median)), high=float(max(high, median)))


def median_stages(stages: Sequence[StageTimes]) -> dict[str, float]:
    """The median of each program over repetitions, milliseconds."""
    return {name: statistics.median(times[name] for times in stages) for name in stages[0]}


_ACTIONS = BenchConfiguration(mode=Mode.ACTIONS)


def _stages_ms(stages: StageTimes, queries: Sequence[QueryTimes]) -> float:
    """Mean milliseconds of queries by their programs alone: no forks, no host."""
    decoding = (
        job.prefills * stages["prefill"] + job.steps * stages[f"decode_{job.batch}"]
        for query in queries
        for job in query.work
    )
    return stages["prefill"] + stages["denoise"] + sum(decoding) / len(queries)


def aggregate(
    workload: Workload, measured: Mapping[BenchConfiguration, Samples], *, horizon: int
) -> dict[BenchConfiguration, dict[str, Any]]:
    """The measured fields of the row of each configuration of a workload; `Row` documents them."""
    frame_ms = {each: samples.by_query("frame_ms").mean(axis=1) for each, samples in measured.items()}
    predicted = {
        each: np.array([_stages_ms(*both) for both in zip(samples.stages, samples.runs, strict=True)])
        for each, samples in measured.items()
        if each.mode is not Mode.PARALLEL  # two processes share the device: its programs do not add up
    }
    reference = measured.get(_ACTIONS) or next(iter(measured.values()))
    return {
        each: {
            **_totals(samples, each, horizon, workload.robots),
            "stage_ms": median_stages(samples.stages),
            **_ratios(each, frame_ms, predicted),
            "actions_sha256": hashlib.sha256("".join(samples.actions).encode()).hexdigest(),
            "actions_equal": samples.actions == reference.actions if len(measured) > 1 else None,
        }
        for each, samples in measured.items()
    }


def _ratios(
    own: BenchConfiguration,
    frame_ms: Mapping[BenchConfiguration, np.ndarray],
    predicted: Mapping[BenchConfiguration, np.ndarray],
) -> dict[str, Any]:
    """The ratios that the measured configurations allow, from milliseconds in each repetition."""
    found: dict[str, Any] = {}
    if own in predicted:
        found["frame_ms_predicted"] = float(np.median(predicted[own]))
        found |= ratio_fields("predicted_over_frame", predicted[own], frame_ms[own])
    isolated = BenchConfiguration(mode=Mode.ISOLATED, adapter=own.adapter)
    if isolated in frame_ms:
        frames = frame_ms[isolated], frame_ms[own]
        found |= ratio_fields("speedup_over_isolated", *frames, interval="speedup_ci95")
        if own in predicted and isolated in predicted:
            speedup = predicted[isolated] / predicted[own]
            found["predicted_speedup"] = float(np.median(speedup))
            found |= ratio_fields("attained_fraction", *frames, expected=speedup, interval="attained_ci95")
    return found


def _totals(samples: Samples, configuration: BenchConfiguration, horizon: int, robots: int) -> dict[str, Any]:
    action_ms, frame_ms = samples.by_query("action_ms"), samples.by_query("frame_ms")
    first_token_ms, request_ms = samples.by_text("first_token_ms"), samples.by_text("request_ms")
    seconds, deadline = 1e-3 * float(frame_ms.sum()), configuration.deadline_ms
    chunks_per_s = robots * frame_ms.size / seconds
    budgeted = configuration.mode in BUDGETED
    return {
        **_percentiles("action_ms", action_ms),
        **_percentiles("frame_ms", frame_ms),
        "frame_ms_mean": float(frame_ms.mean()),
        **_percentiles("first_token_ms", first_token_ms),
        **_percentiles("request_ms", request_ms),
        "chunks_per_s": chunks_per_s,
        "actions_per_s": horizon * chunks_per_s,
        "tokens_per_s": int(samples.by_query("tokens").sum()) / seconds,
        "decode_steps_per_frame": float(samples.by_query("decode_steps").mean()) if budgeted else None,
        "deadline_missed_fraction": None if deadline is None else float((frame_ms > deadline).mean()),
        "requests_submitted": int(samples.by_query("submitted").sum()),
        "requests_finished": len(request_ms),
        "samples": {
            "action_ms": action_ms.round(4).tolist(),
            "frame_ms": frame_ms.round(4).tolist(),
            "first_token_ms": np.round(first_token_ms, 4).tolist(),
            "request_ms": np.round(request_ms, 4).tolist(),
            "stage_ms": [{name: round(ms, 4) for name, ms in times.items()} for times in samples.stages],
        },
    }


def _percentiles(name: str, values: np.ndarray | Sequence[float]) -> dict[str, float | None]:
    found = quantiles(np.ravel(values))
    return {f"{name}_{p}": getattr(found, p, None) for p in ("p50", "p95", "p99")}
