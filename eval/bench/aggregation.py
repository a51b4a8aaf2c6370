"""Makes the measured fields of rows from samples: quantiles, rates, and ratios to the baseline."""

import dataclasses
import hashlib
import statistics
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.bench.measurement import Samples, StageTimes
from eval.bench.serving import QueryTimes
from eval.bench.workloads import BUDGETED, BenchConfiguration, Workload
from eval.metrics.statistics import Interval, bounds, quantiles
from oxygen.serving.scheduler import Mode

_LEVEL = 0.95

Numbers = Sequence[float] | np.ndarray
"""A number of each repetition, [repetition]."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio: its median over repetitions, and an interval of that median.

    The interval covers 95 % from six repetitions on, less with fewer (see `_median_95`); None for one.
    """

    value: float
    ci95: Interval | None


def paired_ratio(numerators: Numbers, denominators: Numbers, *, expected: Numbers | None = None) -> Ratio:
    """The median over repetitions of numerator / denominator, divided by the `expected` ratio if given.

    Drift of the machine is common to both sides of a repetition and cancels. The median and its interval are
    robust to single disturbed repetitions.

    Raises:
        ValueError: There are no repetitions, or the numbers of them differ.
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
    """A paired ratio and its interval as fields of a row.

    Args:
        name: The field of the ratio.
        numerators: One per repetition.
        denominators: One per repetition.
        expected: As for `paired_ratio`.
        interval: The field of the interval; `NAME_ci95` if None.
    """
    ratio = paired_ratio(numerators, denominators, expected=expected)
    return {name: ratio.value, interval or f"{name}_ci95": bounds(ratio.ci95)}


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


def decode_growth(stages: Sequence[StageTimes]) -> Ratio | None:
    """Ratio of a decode step's time, largest batch to smallest; None if there is only one size.

    Args:
        stages: Stage times, one mapping per repetition.
    """
    sizes = sorted(decode_sizes(stages[0]))
    if len(sizes) < 2:
        return None
    smallest, *_, largest = (f"decode_{size}" for size in sizes)
    return paired_ratio([times[largest] for times in stages], [times[smallest] for times in stages])


def decode_sizes(stages: StageTimes) -> list[int]:
    """The batch sizes of the decode programs among stages."""
    return [int(name.removeprefix("decode_")) for name in stages if name.startswith("decode_")]


def median_stages(stages: Sequence[StageTimes]) -> dict[str, float]:
    """The median of each program over repetitions, milliseconds."""
    return {name: statistics.median(times[name] for times in stages) for name in stages[0]}


_ACTIONS = BenchConfiguration(mode=Mode.ACTIONS)


def stages_ms(stages: StageTimes, queries: Sequence[QueryTimes]) -> float:
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
    action_ms = {each: np.median(samples.by_query("action_ms"), axis=1) for each, samples in measured.items()}
    predicted = {
        each: np.array([stages_ms(*both) for both in zip(samples.stages, samples.runs, strict=True)])
        for each, samples in measured.items()
        if each.mode is not Mode.PARALLEL  # two processes share the device: its programs do not add up
    }
    by_repetition = zip(*(samples.stages for samples in measured.values()), strict=True)
    growth = decode_growth([dict(ChainMap(*of_all)) for of_all in by_repetition])
    reference = measured.get(_ACTIONS) or next(iter(measured.values()))
    return {
        each: {
            **_totals(samples, each, horizon, workload.robots),
            "stage_ms": median_stages(samples.stages),
            "decode_growth": growth and growth.value,
            "decode_growth_ci95": growth and bounds(growth.ci95),
            **_ratios(each, frame_ms, action_ms, predicted),
            "actions_sha256": hashlib.sha256("".join(samples.actions).encode()).hexdigest(),
            "actions_equal": samples.actions == reference.actions if len(measured) > 1 else None,
        }
        for each, samples in measured.items()
    }


ByRepetition = Mapping[BenchConfiguration, np.ndarray]
"""Milliseconds in each repetition, by configuration."""


def _ratios(
    own: BenchConfiguration, frame_ms: ByRepetition, action_ms: ByRepetition, predicted: ByRepetition
) -> dict[str, Any]:
    """The ratios that the measured configurations allow."""
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
    if _ACTIONS in action_ms:
        found |= ratio_fields("action_over_actions", action_ms[own], action_ms[_ACTIONS])
    return found


def _totals(samples: Samples, configuration: BenchConfiguration, horizon: int, robots: int) -> dict[str, Any]:
    """Samples, latencies, rates and counts over the queries of all runs."""
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
        "requests_dropped": int(samples.by_query("dropped").sum()),
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
    return {f"{name}_{p}": found.get(p) for p in ("p50", "p95", "p99")}
