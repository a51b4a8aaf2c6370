"""Rows and measurements made up to be easy to reckon with."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from eval.bench.measurement import Measurements, QueryTimes, Repetitions, TextLatency
from eval.bench.memory import MemoryUse
from eval.bench.row import Row, WorkloadInfo
from eval.bench.rows import RunInfo, rows
from eval.bench.schedule import StageTimes
from eval.bench.workloads import BenchConfiguration, Workload, parse_arrivals
from oxygen.serving.scheduler import Mode

STAGES = StageTimes(prefill=100.0, denoise=30.0, guided_denoise=70.0, fork=5.0, decode={1: 4.0, 30: 10.0})


def workload(arrivals_text="every:1", *, text_tokens=30, robots=1, **room) -> Workload:
    """Ten denoising steps, and what a test says of the rest."""
    return Workload(
        denoise_steps=10,
        text_tokens=text_tokens,
        robots=robots,
        arrivals=parse_arrivals(arrivals_text),
        arrivals_text=arrivals_text,
        **room,
    )


WORKLOAD = workload()
INFO = WorkloadInfo(
    policy="small",
    weights="random",
    dtype="float32",
    device="cpu",
    cameras=2,
    prompt_tokens=32,
    prefix_tokens=544,
    horizon=10,
)
BATCHES = {
    BenchConfiguration(mode=Mode.ACTIONS): None,
    BenchConfiguration(mode=Mode.ISOLATED): 1,
    BenchConfiguration(mode=Mode.UNIFIED, tokens_per_frame=1): 30,
    BenchConfiguration(mode=Mode.PARALLEL): 1,
}
FRAMES_MS = dict(zip(BATCHES, (130.0, 350.0, 140.0, 300.0), strict=True))
PROVENANCE = {
    "written_at": "2026-11-21T12:00:00+00:00",
    "command": "python -m eval.bench",
    "commit": None,
    "dirty": None,
    "versions": {"python": "3.12", "mujoco": None, "jax": "0.0"},
    "hardware": {"processor": "an abacus", "cores": 2, "load_average": [0.1, 0.1, 0.1]},
}
MEMORY = MemoryUse(
    by_program={"prefill": 300, "denoise": 200, "fork": 350, "decode_30": 400},
    second_process=None,
    peak=2**30,
    peak_of="process",
)
DRIFT = (1.0, 2.0, 1.5)


def query(frame_ms: float, *, tokens: int, actions: str = "the same") -> QueryTimes:
    texts = [TextLatency(first_token_ms=frame_ms, request_ms=30 * frame_ms)] if tokens else []
    return QueryTimes(
        actions_sha256=actions,
        action_ms=0.9 * frame_ms,
        frame_ms=frame_ms,
        tokens=tokens,
        decode_steps=1 if tokens else 0,
        submitted=len(texts),
        dropped=0,
        finished=texts,
    )


def measured() -> Measurements:
    """Three repetitions on a machine that is slower in the second and third, in everything alike."""
    runs = {
        configuration: [
            [query(slow * ms, tokens=0 if configuration.mode is Mode.ACTIONS else 30)] * 4 for slow in DRIFT
        ]
        for configuration, ms in FRAMES_MS.items()
    }
    stages = [
        {configuration: _slower(slow, batch) for configuration, batch in BATCHES.items()} for slow in DRIFT
    ]
    return Measurements(runs=runs, stages=stages, actions=dict.fromkeys(BATCHES, ["the same"] * 46))


def _slower(slow: float, batch: int | None) -> StageTimes:
    """A configuration's programs; what decodes nothing is served with the smallest batch."""
    return StageTimes(
        prefill=slow * STAGES.prefill,
        denoise=slow * STAGES.denoise,
        guided_denoise=slow * STAGES.guided_denoise,
        fork=slow * STAGES.fork,
        decode={batch or 1: slow * STAGES.decode[batch or 1]},
    )


@pytest.fixture
def made_up() -> Callable[..., Sequence[Row]]:
    """Rows of one workload, the same figures in every one of them."""

    def rows_of(workload: Workload = WORKLOAD, **changes: Any) -> Sequence[Row]:
        run_info = RunInfo(
            batches={configuration: lambda _, batch=batch: batch for configuration, batch in BATCHES.items()},
            compiles_after_warmup=dict.fromkeys(BATCHES, 0),
            memory=dict.fromkeys(BATCHES, MEMORY),
            multi_process_service=False,
            took_s=12.5,
            provenance=PROVENANCE,
        )
        repetitions = Repetitions(count=3, queries=4, warm_up=31)
        return rows(INFO, workload, repetitions, dataclasses.replace(measured(), **changes), run_info)

    return rows_of
