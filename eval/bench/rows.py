"""From what was measured to rows: quantiles, rates, and ratios to the baseline."""

import dataclasses
import hashlib
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eval.bench.measurement import Measured, Query, Run, StagesOf, Turns
from eval.bench.memory import Memory, needed
from eval.bench.ratios import Ratio, decode_growth, paired_ratio
from eval.bench.row import Row, Setting
from eval.bench.schedule import StageTimes, Work, is_foreseen, work
from eval.bench.workloads import Contender, Workload
from eval.metrics.statistics import Interval, quantiles
from oxygen.serving.scheduler import Mode

Batch = Callable[[Work], int | None]
"""The size of the decode program that a query's work runs; None if it decodes nothing."""

_ISOLATED, _ACTIONS = Contender(mode=Mode.ISOLATED), Contender(mode=Mode.ACTIONS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Afterwards:
    """What is known once a workload has been measured.

    Attributes:
        batches: The decode program that each contender's work takes.
        compiles_after_warmup: Compilations since the programs were ready, by contender.
        memory: What each contender takes of it.
        multi_process_service: Whether NVIDIA's runs; None where the device is no GPU.
        took_s: Seconds since the command began.
        provenance: When it was written, command, commit, versions, hardware.
    """

    batches: Mapping[Contender, Batch]
    compiles_after_warmup: Mapping[Contender, int]
    memory: Mapping[Contender, Memory]
    multi_process_service: bool | None
    took_s: float
    provenance: Mapping[str, Any]


def rows(
    setting: Setting, workload: Workload, turns: Turns, measured: Measured, afterwards: Afterwards
) -> list[Row]:
    """A row for each contender of a workload."""
    of_each = {contender: [times[contender] for times in measured.stages] for contender in measured.runs}
    growth = decode_growth([_decode_ms(times) for times in measured.stages])
    predicted = {
        contender: _predicted(workload, contender, batch, turns, of_each[contender])
        for contender, batch in afterwards.batches.items()
        if contender in of_each
        and contender.mode is not Mode.PARALLEL  # nothing is known of two processes on one device
        and is_foreseen(workload, contender, turns.total)
    }
    return [
        Row(
            **dataclasses.asdict(setting),
            mode=contender.mode.value,
            denoise_steps=workload.denoise_steps,
            text_tokens=workload.text_tokens,
            tokens_per_frame=contender.tokens_per_frame,
            deadline_ms=contender.deadline_ms,
            robots=workload.robots,
            arrivals=workload.spelled,
            slots=workload.slots,
            rows=workload.rows,
            repetitions=turns.repetitions,
            queries=turns.queries,
            warm_up_queries=turns.warm_up,
            **_latencies(runs),
            **_rates(runs, setting.horizon * workload.robots, workload.robots),
            **_frames(runs, contender),
            **_requests(runs),
            decode_batch=_largest(workload, contender, afterwards.batches[contender], turns),
            stage_ms=_stage_ms(of_each[contender]),
            **_as_fields("decode_growth", "decode_growth", growth),
            **_ratios(contender, measured.runs, predicted),
            **_exactness(contender, measured.actions),
            compiles_after_warmup=afterwards.compiles_after_warmup[contender],
            **_memory(contender, afterwards.memory[contender]),
            multi_process_service=(
                afterwards.multi_process_service if contender.mode is Mode.PARALLEL else None
            ),
            took_s=afterwards.took_s,
            **afterwards.provenance,
        )
        for contender, runs in measured.runs.items()
    ]


def _memory(contender: Contender, memory: Memory) -> dict[str, Any]:
    two = contender.mode is Mode.PARALLEL
    return {
        "program_bytes": memory.by_program,
        "needed_memory_bytes": needed(memory.by_program, in_two_processes=two),
        "second_process_bytes": memory.second_process,
        "peak_memory_bytes": memory.peak,
        "peak_memory_of": memory.peak_of,
    }


def _all(runs: Sequence[Run]) -> list[Query]:
    return list(itertools.chain.from_iterable(runs))


def _latencies(runs: Sequence[Run]) -> dict[str, Any]:
    queries = _all(runs)
    texts = [text for query in queries for text in query.finished]
    return {
        **_named("action_ms", (query.action_ms for query in queries)),
        **_named("frame_ms", (query.frame_ms for query in queries)),
        "frame_ms_mean": statistics.fmean(query.frame_ms for query in queries),
        **_named("first_token_ms", (text.first_token_ms for text in texts)),
        **_named("request_ms", (text.request_ms for text in texts)),
    }


def _named(name: str, values: Iterable[float]) -> dict[str, float | None]:
    found = quantiles(values)
    return {f"{name}_{p}": found.get(p) for p in ("p50", "p95", "p99")}


def _rates(runs: Sequence[Run], actions: int, chunks: int) -> dict[str, Any]:
    queries = _all(runs)
    seconds = 1e-3 * sum(query.frame_ms for query in queries)
    return {
        "chunks_per_s": chunks * len(queries) / seconds,
        "actions_per_s": actions * len(queries) / seconds,
        "tokens_per_s": sum(query.tokens for query in queries) / seconds,
    }


def _frames(runs: Sequence[Run], contender: Contender) -> dict[str, Any]:
    """What a frame of `unified` was given, and whether that was too much for its deadline."""
    queries, deadline = _all(runs), contender.deadline_ms
    steps = statistics.fmean(query.decode_steps for query in queries)
    missed = None if deadline is None else statistics.fmean(query.frame_ms > deadline for query in queries)
    return {
        "decode_steps_per_frame": steps if contender.mode is Mode.UNIFIED else None,
        "deadline_missed_fraction": missed,
    }


def _requests(runs: Sequence[Run]) -> dict[str, Any]:
    queries = _all(runs)
    return {
        "requests_born": sum(query.born for query in queries),
        "requests_finished": sum(len(query.finished) for query in queries),
        "requests_dropped": sum(query.dropped for query in queries),
    }


def _exactness(contender: Contender, actions: Mapping[Contender, Sequence[str]]) -> dict[str, Any]:
    """All contenders see the same and draw the same noise, so their actions must be the same."""
    reference = actions.get(_ACTIONS) or next(iter(actions.values()))
    mine = actions[contender]
    return {
        "actions_sha256": hashlib.sha256("".join(mine).encode()).hexdigest(),
        "actions_equal": mine == reference if len(actions) > 1 else None,
    }


def _stage_ms(stages: Sequence[StageTimes]) -> dict[str, float]:
    named = [
        {
            "prefill": times.prefill,
            "denoise": times.denoise,
            "guided_denoise": times.guided_denoise,
            "fork": times.fork,
            **{f"decode_{batch}": ms for batch, ms in times.decode.items()},
        }
        for times in stages
    ]
    return {name: statistics.median(times[name] for times in named) for name in named[0]}


def _decode_ms(times: StagesOf) -> dict[int, float]:
    """A decode step of every size of batch among the contenders."""
    return {batch: ms for of_one in times.values() for batch, ms in of_one.decode.items()}


def _predicted(
    workload: Workload, contender: Contender, batch: Batch, turns: Turns, stages: Sequence[StageTimes]
) -> list[float]:
    """Mean milliseconds of a frame in each repetition, by the stage times of that repetition."""
    works = work(workload, contender, turns.total)
    return [
        times.predicted([(query, batch(query)) for query in works[turns.window(repetition)]])
        for repetition, times in enumerate(stages)
    ]


def _largest(workload: Workload, contender: Contender, batch: Batch, turns: Turns) -> int | None:
    sizes = [batch(query) for query in work(workload, contender, turns.total)]
    return max((size for size in sizes if size is not None), default=None)


def _ratios(
    contender: Contender,
    runs: Mapping[Contender, Sequence[Run]],
    predicted: Mapping[Contender, Sequence[float]],
) -> dict[str, Any]:
    mine = predicted.get(contender)
    found: dict[str, Any] = {
        "frame_ms_predicted": None if mine is None else statistics.median(mine),
        **_NO_SPEEDUP,
        **_as_fields("predicted_over_frame", "predicted_over_frame", None),
        **_as_fields("action_over_actions", "action_over_actions", None),
    }
    if mine is not None:
        share = paired_ratio(mine, _mean_frames(runs[contender]))
        found |= _as_fields("predicted_over_frame", "predicted_over_frame", share)
    if _ISOLATED in runs:
        base, frames = _mean_frames(runs[_ISOLATED]), _mean_frames(runs[contender])
        found |= _as_fields("speedup_over_isolated", "speedup", paired_ratio(base, frames))
        if mine is not None and _ISOLATED in predicted:
            expected = [a / b for a, b in zip(predicted[_ISOLATED], mine, strict=True)]
            found["predicted_speedup"] = statistics.median(expected)
            attained = paired_ratio(base, frames, expected=expected)
            found |= _as_fields("attained_fraction", "attained", attained)
    if _ACTIONS in runs:
        ratio = paired_ratio(_median_actions(runs[contender]), _median_actions(runs[_ACTIONS]))
        found |= _as_fields("action_over_actions", "action_over_actions", ratio)
    return found


def _as_fields(name: str, stem: str, ratio: Ratio | None) -> dict[str, Any]:
    """A ratio and its intervals, which are named after `stem`."""
    return {
        name: None if ratio is None else ratio.value,
        f"{stem}_ci95": None if ratio is None else _bounds(ratio.ci95),
        f"{stem}_bootstrap95": None if ratio is None else _bounds(ratio.bootstrap95),
    }


def _bounds(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else (interval.low, interval.high)


_NO_SPEEDUP = {
    **_as_fields("speedup_over_isolated", "speedup", None),
    "predicted_speedup": None,
    **_as_fields("attained_fraction", "attained", None),
}


def _mean_frames(runs: Sequence[Run]) -> list[float]:
    return [statistics.fmean(query.frame_ms for query in run) for run in runs]


def _median_actions(runs: Sequence[Run]) -> list[float]:
    return [statistics.median(query.action_ms for query in run) for run in runs]
