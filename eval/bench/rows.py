"""Makes rows of measurements: quantiles, rates, and ratios to the baseline."""

import dataclasses
import hashlib
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from eval.bench.measurement import Measurements, QueryTimes, Repetitions, Run
from eval.bench.memory import MemoryUse, required_bytes
from eval.bench.row import Row, WorkloadInfo
from eval.bench.schedule import QueryPrograms, StageTimes, is_predictable, programs_by_query
from eval.bench.workloads import BenchConfiguration, Workload
from eval.metrics.statistics import Interval, quantiles
from oxygen.serving.scheduler import Mode

_LEVEL = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio: its median over repetitions, and an interval of that median.

    The interval covers 95 % from six repetitions on, less with fewer (see `_median_95`); None for one.
    """

    value: float
    ci95: Interval | None


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], *, expected: Sequence[float] | None = None
) -> Ratio:
    """The median over repetitions of numerator / denominator, divided by the `expected` ratio if given.

    Drift of the machine is common to both sides of a repetition and cancels. The median and its interval are
    robust to single disturbed repetitions.

    Raises:
        ValueError: There are no repetitions, or the numbers of them differ.
    """
    if not numerators:
        raise ValueError("a ratio of no repetitions")
    by = expected or (1.0,) * len(numerators)
    ratios = np.array([a / b / c for a, b, c in zip(numerators, denominators, by, strict=True)])
    return Ratio(value=float(np.median(ratios)), ci95=_median_95(np.sort(ratios)))


def _median_95(sample: np.ndarray) -> Interval | None:
    """Distribution-free interval of the median of an ascending sample; None for a single number.

    The k-th smallest and the k-th largest number enclose the median with a binomial probability. For 95 % the
    intervals of neighbouring k are interpolated (Hettmansperger and Sheather 1986). For two to five numbers
    the interval is the range of the sample, which covers the median in 50, 75, 88 and 94 % of cases.
    """
    if len(sample) < 2:
        return None
    inner = next(k for k in range(1, len(sample)) if _coverage(k, len(sample)) < _LEVEL)
    if inner == 1:
        return Interval(low=float(sample[0]), high=float(sample[-1]))
    outer, n = inner - 1, len(sample)
    wide, narrow = _coverage(outer, n), _coverage(inner, n)
    part = (wide - _LEVEL) / (wide - narrow)
    inwards = (n - outer) * part / (outer + (n - 2 * outer) * part)
    low = sample[outer - 1] + inwards * (sample[outer] - sample[outer - 1])
    high = sample[-outer] - inwards * (sample[-outer] - sample[-outer - 1])
    median = np.median(sample)  # rounding may put it just outside where numbers are equal
    return Interval(low=float(min(low, median)), high=float(max(high, median)))


def _coverage(k: int, n: int) -> float:
    """Probability that the k-th smallest and the k-th largest of n numbers enclose the median."""
    from scipy.stats import binom

    return float(1 - 2 * binom.cdf(k - 1, n, 0.5))


def decode_growth(decode_ms: Sequence[Mapping[int, float]]) -> Ratio | None:
    """Ratio of a decode step's time, largest batch to smallest; None if there is only one size.

    Args:
        decode_ms: Milliseconds by batch size, one mapping per repetition.
    """
    sizes = sorted(decode_ms[0])
    if len(sizes) < 2:
        return None
    smallest, *_, largest = sizes
    return paired_ratio([times[largest] for times in decode_ms], [times[smallest] for times in decode_ms])


DecodeBatchSize = Callable[[QueryPrograms], int | None]
"""The decode batch size of a query; None if it decodes nothing."""

_ISOLATED, _ACTIONS = BenchConfiguration(mode=Mode.ISOLATED), BenchConfiguration(mode=Mode.ACTIONS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunInfo:
    """Facts of a workload's run, except its times.

    Attributes:
        batches: The decode batch size of a query, by configuration.
        compiles_after_warmup: Compilations after warm-up, by configuration.
        memory: Memory use, by configuration.
        multi_process_service: Whether NVIDIA's multi-process service runs; None if the device is no GPU.
        took_s: Seconds since the command began.
        provenance: Time of writing, command, commit, versions, hardware.
    """

    batches: Mapping[BenchConfiguration, DecodeBatchSize]
    compiles_after_warmup: Mapping[BenchConfiguration, int]
    memory: Mapping[BenchConfiguration, MemoryUse]
    multi_process_service: bool | None
    took_s: float
    provenance: Mapping[str, Any]


def rows(
    info: WorkloadInfo,
    workload: Workload,
    repetitions: Repetitions,
    measured: Measurements,
    run_info: RunInfo,
) -> list[Row]:
    """A row for each configuration of a workload."""
    stages = {
        configuration: [times[configuration] for times in measured.stages] for configuration in measured.runs
    }
    growth = decode_growth(
        [
            {batch: ms for one in times.values() for batch, ms in one.decode.items()}
            for times in measured.stages
        ]
    )
    predicted = {
        configuration: _predicted(workload, configuration, batch, repetitions, stages[configuration])
        for configuration, batch in run_info.batches.items()
        if configuration in stages
        and configuration.mode is not Mode.PARALLEL  # two processes share the device
        and is_predictable(workload, configuration, repetitions.total_queries)
    }
    return [
        Row(
            **dataclasses.asdict(info),
            **workload.fields,
            **dataclasses.asdict(configuration),
            repetitions=repetitions.count,
            queries=repetitions.queries,
            warm_up_queries=repetitions.warm_up,
            **_totals([*itertools.chain(*runs)], configuration, info.horizon, workload.robots),
            decode_batch=_largest(workload, configuration, run_info.batches[configuration], repetitions),
            stage_ms=_stage_ms(stages[configuration]),
            **_as_fields("decode_growth", growth),
            **_ratios(configuration, measured.runs, predicted),
            **_exactness(configuration, measured.actions),
            compiles_after_warmup=run_info.compiles_after_warmup[configuration],
            **_memory(configuration, run_info),
            took_s=run_info.took_s,
            **run_info.provenance,
        )
        for configuration, runs in measured.runs.items()
    ]


def _memory(configuration: BenchConfiguration, run_info: RunInfo) -> dict[str, Any]:
    memory, in_two_processes = run_info.memory[configuration], configuration.mode is Mode.PARALLEL
    return {
        "program_bytes": memory.by_program,
        "needed_memory_bytes": required_bytes(memory.by_program, in_two_processes=in_two_processes),
        "second_process_bytes": memory.second_process,
        "peak_memory_bytes": memory.peak,
        "peak_memory_of": memory.peak_of,
        "multi_process_service": run_info.multi_process_service if in_two_processes else None,
    }


def _totals(
    queries: Sequence[QueryTimes], configuration: BenchConfiguration, horizon: int, robots: int
) -> dict[str, Any]:
    """Latencies, rates and counts over the queries of all runs."""
    texts = [text for query in queries for text in query.finished]
    seconds = 1e-3 * sum(query.frame_ms for query in queries)
    steps, deadline = statistics.fmean(query.decode_steps for query in queries), configuration.deadline_ms
    missed = None if deadline is None else statistics.fmean(query.frame_ms > deadline for query in queries)
    return {
        **_percentiles("action_ms", (query.action_ms for query in queries)),
        **_percentiles("frame_ms", (query.frame_ms for query in queries)),
        "frame_ms_mean": statistics.fmean(query.frame_ms for query in queries),
        **_percentiles("first_token_ms", (text.first_token_ms for text in texts)),
        **_percentiles("request_ms", (text.request_ms for text in texts)),
        "chunks_per_s": robots * len(queries) / seconds,
        "actions_per_s": horizon * robots * len(queries) / seconds,
        "tokens_per_s": sum(query.tokens for query in queries) / seconds,
        "decode_steps_per_frame": steps if configuration.mode in (Mode.UNIFIED, Mode.INTERLEAVED) else None,
        "deadline_missed_fraction": missed,
        "requests_submitted": sum(query.submitted for query in queries),
        "requests_finished": len(texts),
        "requests_dropped": sum(query.dropped for query in queries),
    }


def _percentiles(name: str, values: Iterable[float]) -> dict[str, float | None]:
    found = quantiles(values)
    return {f"{name}_{p}": found.get(p) for p in ("p50", "p95", "p99")}


def _exactness(
    configuration: BenchConfiguration, actions: Mapping[BenchConfiguration, Sequence[str]]
) -> dict[str, Any]:
    """All configurations get the same observations and noise, so their actions must be equal."""
    reference = actions.get(_ACTIONS) or next(iter(actions.values()))
    own = actions[configuration]
    return {
        "actions_sha256": hashlib.sha256("".join(own).encode()).hexdigest(),
        "actions_equal": own == reference if len(actions) > 1 else None,
    }


def _stage_ms(stages: Sequence[StageTimes]) -> dict[str, float]:
    by_name: dict[str, Any] = dataclasses.asdict(StageTimes.median(stages))
    decode = by_name.pop("decode")
    return {**by_name, **{f"decode_{batch}": ms for batch, ms in decode.items()}}


def _predicted(
    workload: Workload,
    configuration: BenchConfiguration,
    batch: DecodeBatchSize,
    repetitions: Repetitions,
    stages: Sequence[StageTimes],
) -> list[float]:
    """Predicted mean milliseconds of a frame in each repetition, from the stage times of that repetition."""
    queries = programs_by_query(workload, configuration, repetitions.total_queries)
    return [
        times.predicted([(query, batch(query)) for query in queries[repetitions.counted_slice(repetition)]])
        for repetition, times in enumerate(stages)
    ]


def _largest(
    workload: Workload, configuration: BenchConfiguration, batch: DecodeBatchSize, repetitions: Repetitions
) -> int | None:
    queries = programs_by_query(workload, configuration, repetitions.total_queries)
    sizes = [batch(query) for query in queries]
    return max((size for size in sizes if size is not None), default=None)


def _ratios(
    configuration: BenchConfiguration,
    runs: Mapping[BenchConfiguration, Sequence[Run]],
    predicted: Mapping[BenchConfiguration, Sequence[float]],
) -> dict[str, Any]:
    own, frames = predicted.get(configuration), _mean_frames(runs[configuration])
    ratios: dict[str, Ratio | None] = dict.fromkeys(_RATIOS)
    predicted_speedup = None
    if own is not None:
        ratios["predicted_over_frame"] = paired_ratio(own, frames)
    if _ISOLATED in runs:
        base = _mean_frames(runs[_ISOLATED])
        ratios["speedup_over_isolated"] = paired_ratio(base, frames)
        if own is not None and _ISOLATED in predicted:
            expected = [a / b for a, b in zip(predicted[_ISOLATED], own, strict=True)]
            predicted_speedup = statistics.median(expected)
            ratios["attained_fraction"] = paired_ratio(base, frames, expected=expected)
    if _ACTIONS in runs:
        actions = [_median_actions(runs[each]) for each in (configuration, _ACTIONS)]
        ratios["action_over_actions"] = paired_ratio(*actions)
    found: dict[str, Any] = {
        "frame_ms_predicted": own and statistics.median(own),
        "predicted_speedup": predicted_speedup,
    }
    for name, ratio in ratios.items():
        found |= _as_fields(name, ratio)
    return found


_RATIOS = ("predicted_over_frame", "speedup_over_isolated", "attained_fraction", "action_over_actions")
_STEMS = {"speedup_over_isolated": "speedup", "attained_fraction": "attained"}


def _as_fields(name: str, ratio: Ratio | None) -> dict[str, Any]:
    """The fields of a ratio and of its interval."""
    return {
        name: ratio and ratio.value,
        f"{_STEMS.get(name, name)}_ci95": ratio and ratio.ci95 and (ratio.ci95.low, ratio.ci95.high),
    }


def _mean_frames(runs: Sequence[Run]) -> list[float]:
    return [statistics.fmean(query.frame_ms for query in run) for run in runs]


def _median_actions(runs: Sequence[Run]) -> list[float]:
    return [statistics.median(query.action_ms for query in run) for run in runs]
