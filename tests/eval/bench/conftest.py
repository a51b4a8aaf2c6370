"""A policy of a few thousand parameters, and rows and samples made up to be easy to reckon with."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from contracts.mode import Mode
from contracts.text import DecodeWork
from eval.bench.experiment import run_experiment
from eval.bench.measurement import Samples, aggregate
from eval.bench.options import Options, read
from eval.bench.row import Row, RowFile
from eval.bench.serving import ModelUnderTest, QueryTimes
from eval.bench.workloads import BenchConfiguration, Workload
from tests.oxygen.conftest import SMALL

MODEL = ModelUnderTest(
    name="small-for-tests", config=SMALL, weights=0, weights_from="random", prompt_tokens=20
)


def options(path: Path, *more: str) -> Options:
    """Few runs of short texts, with two ks if mode `unified` is among the modes and no deadline sets them."""
    few = ["--repetitions", "2", "--queries", "3", "--text-tokens", "6"]
    has_ks = ("--modes" not in more or "unified" in more) and "--deadline-ms" not in more
    ks = ["--tokens-per-frame", "1", "3"] if has_ks else []
    return read([*few, *ks, "--output", str(path), *more])


def measured(folder: Path, *more: str, code: int = 0) -> Sequence[Row]:
    """The rows of an experiment with these options, which ends with that exit code."""
    assert run_experiment(options(folder / "rows.jsonl", *more), MODEL) == code
    return RowFile(folder / "rows.jsonl").rows


STAGES = {
    "prefill": 100.0,
    "denoise": 30.0,
    "guided_denoise": 70.0,
    "fork": 5.0,
    "decode_1": 4.0,
    "decode_6": 6.0,
    "decode_30": 10.0,
}


def workload(arrivals="every:1", **more) -> Workload:
    """Texts of 30 tokens, three repetitions of four queries, and what a test says of the rest."""
    often = {"repetitions": 3, "queries": 4, "warm_up_queries": 31}
    return Workload(**{"denoise_steps": 10, "text_tokens": 30, "arrivals": arrivals} | often | more)


WORKLOAD = workload()
WHOLE_TEXT = DecodeWork(prefills=1, forks=1, steps=30, batch=1)
JOBS = {
    BenchConfiguration(mode=Mode.ACTIONS): [],
    BenchConfiguration(mode=Mode.ISOLATED): [WHOLE_TEXT],
    BenchConfiguration(mode=Mode.UNIFIED, tokens_per_frame=1): [
        DecodeWork(prefills=0, forks=1, steps=1, batch=30)
    ],
    BenchConfiguration(mode=Mode.PARALLEL): [WHOLE_TEXT],
}
FRAMES_MS = dict(zip(JOBS, (130.0, 350.0, 140.0, 300.0), strict=True))
HARDWARE = {"processor": "an abacus", "cores": 2, "load_average": [0.1, 0.1, 0.1]}
DRIFT = (1.0, 2.0, 1.5)


def query(frame_ms: float, work: Sequence[DecodeWork] = (), *, actions: str = "the same") -> QueryTimes:
    tokens = 30 if work else 0
    return QueryTimes(
        actions_sha256=actions,
        action_ms=0.9 * frame_ms,
        frame_ms=frame_ms,
        tokens=tokens,
        decode_steps=min(tokens, 1),
        work=work,
        submitted=min(tokens, 1),
        first_token_ms=[frame_ms] if tokens else [],
        request_ms=[30 * frame_ms] if tokens else [],
    )


def sampled(
    configuration: BenchConfiguration, *, slower: float = 1.0, actions: Sequence[str] = ("the same",) * 46
) -> Samples:
    """Three repetitions on a machine that is slower in the second and third, in everything alike.

    Frames are `slower` than their programs.
    """
    jobs = JOBS[configuration]
    programs = {"prefill", "denoise", "guided_denoise", "fork", *(f"decode_{job.batch}" for job in jobs)}
    return Samples(
        runs=[[query(slower * slow * FRAMES_MS[configuration], jobs)] * 4 for slow in DRIFT],
        stages=[{name: slow * STAGES[name] for name in STAGES if name in programs} for slow in DRIFT],
        actions=list(actions),
    )


@pytest.fixture
def made_up() -> Callable[..., Sequence[Row]]:
    """Rows of one workload, the same figures in every one of them."""

    def rows_of(work: Workload = WORKLOAD, samples: Any = None) -> Sequence[Row]:
        samples = samples or {each: sampled(each) for each in JOBS}
        fields = aggregate(work, samples, horizon=10)
        shared = {
            "policy": "small",
            "weights": "random",
            "dtype": "float32",
            "device": "cpu",
            "cameras": 2,
            "prompt_tokens": 32,
            "prefix_tokens": 544,
            "horizon": 10,
            "compiles_after_warmup": 0,
            "needed_memory_bytes": 300,
            "written_at": "2026-11-21T12:00:00+00:00",
            "command": "oxygen-eval bench",
            "commit": None,
            "dirty": None,
            "versions": {"python": "3.12", "mujoco": None, "jax": "0.0", "numpy": "2.0"},
            "hardware": HARDWARE,
        }
        return [
            Row(
                **vars(work),
                **shared,
                **vars(each),
                **fields[each],
                multi_process_service=False if each.mode is Mode.PARALLEL else None,
            )
            for each in samples
        ]

    return rows_of
