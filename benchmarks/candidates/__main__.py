"""`python -m benchmarks.candidates`: alternatives to each serving stage, measured in turns.

Denoise and prefill of one robot, and decode steps of 1 and of N texts, each in a pool of that many slots.
Other attentions, XLA's options and int8 decode weights; an alternative that the device cannot run is left out
with the reason. Results are compared with those of serving. The record is written after every stage, and
a second call adds the stages that it lacks.
"""

import argparse
import dataclasses
import functools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.candidates.alternatives import SERVED, Alternative, of_decode, of_denoise, of_prefill
from benchmarks.record import write_record
from eval.bench.aggregation import ratio_fields
from eval.bench.measurement import in_turns
from eval.bench.model_under_test import ModelUnderTest, find_model
from eval.bench.roofline import find_peaks, stage_costs
from eval.bench.serving import SUFFIX, Bench
from oxygen.model import int8
from oxygen.model.compile_cache import use_compile_cache
from oxygen.model.compiler_options import compiler_options
from oxygen.model.pi05 import Weights
from oxygen.serving.requests import Request
from oxygen.serving.runner import ProgramSizes, Runner

_PROMPT_TOKENS = 24
_CALLS = 3
"""Calls of prefill and denoise in a turn."""
_NEEDS_GPU = "needs a GPU"
_LENGTHIEST_REASON = 160


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage with its alternatives.

    Attributes:
        name: `prefill`, `denoise` or `decode B`.
        alternatives: The first one is as served.
        inputs: Arguments after the weights, made anew for each turn; the pool among them is donated.
        turn: Runs a program on them; returns what it computed and the calls it took.
    """

    name: str
    alternatives: Sequence[Alternative]
    inputs: Callable[[], tuple[Any, ...]]
    turn: Callable[[Callable[..., Any], tuple[Any, ...]], tuple[Any, int]]
    donated: tuple[int, ...] = ()


def stages(runners: Mapping[str, Runner], model: ModelUnderTest) -> Iterator[Stage]:
    """All stages; `runners` by the names of their decode stages."""
    runner = next(iter(runners.values()))
    config, blank = runner.config, runner.blank(model.bucket)
    prefix = runner.prefill(blank)
    shape = (1, config.horizon, config.action_dim)
    noise = jnp.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))
    yield Stage(
        name="denoise",
        alternatives=tuple(of_denoise(config)),
        inputs=lambda: (prefix, noise),
        turn=_several_calls,
    )
    for name, served in runners.items():
        yield Stage(
            name=name,
            alternatives=tuple(of_decode()),
            inputs=functools.partial(_texts_begun, served, prefix),
            turn=functools.partial(_all_tokens, served.sizes.limit),
            donated=(2,),
        )
    images, prompt, length = map(jnp.asarray, dataclasses.astuple(blank))
    yield Stage(
        name="prefill",
        alternatives=tuple(of_prefill(config)),
        inputs=lambda: (images, prompt, length),
        turn=_several_calls,
    )


def _several_calls(program: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Any, int]:
    for _ in range(_CALLS):
        result = jax.block_until_ready(program(*inputs))
    return result, _CALLS


def _texts_begun(runner: Runner, prefix: Any) -> tuple[Any, ...]:
    """The rows, pool and texts of a full batch, forked one by one."""
    state = runner.empty()
    slots = range(runner.sizes.slots)
    for slot in slots:
        new = runner.new_requests([Request(slot=slot, robot=0, suffix=SUFFIX, seed=slot, query=0, task=0)])
        state = runner.fork(prefix, new, *state)
    return jnp.asarray(slots, jnp.int32), *state


def _all_tokens(limit: int, program: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Any, int]:
    """Decode whole texts; the steps are queued at once, as in serving."""
    rows, pool, texts = inputs
    for _ in range(limit):
        pool, texts = program(rows, pool, texts)
    return jax.block_until_ready(texts.written[rows]), limit


def measure(stage: Stage, weights: Weights, repetitions: int) -> list[dict[str, Any]]:
    """A row for each alternative: its times, and its result compared with that of serving."""
    programs, left_out = _compiled(stage, weights)
    turns = {name: functools.partial(_turn, stage, program) for name, program in programs.items()}
    results = {name: turn()[0] for name, turn in turns.items()}  # and warms up
    *_, measured = in_turns(turns, repetitions)
    taken = {name: [ms for _, ms in each] for name, each in measured.items()}
    rows: list[dict[str, Any]] = []
    for each in stage.alternatives:
        row: dict[str, Any] = {"stage": stage.name, "alternative": each.name}
        if (ms := taken.get(each.name)) is None:
            row |= {"left_out": left_out[each.name]}
        else:
            row |= {"ms": ms, "ms_median": statistics.median(ms)}
            row |= ratio_fields("served_over_this", taken[SERVED], ms)
            row |= _compared(results[SERVED], results[each.name])
        rows.append(row)
    return rows


def _turn(stage: Stage, program: Callable[..., Any]) -> tuple[Any, float]:
    """The result of a turn, and milliseconds of a call."""
    inputs = jax.block_until_ready(stage.inputs())
    began = time.perf_counter()
    result, calls = stage.turn(program, inputs)
    return result, 1e3 * (time.perf_counter() - began) / calls


def _compiled(stage: Stage, weights: Weights) -> tuple[dict[str, Callable[..., Any]], dict[str, str]]:
    """The programs by name, bound to their weights, and why others cannot be compiled."""
    platform = jax.default_backend()
    served, programs, left_out = dict(compiler_options(platform)), {}, {}
    for each in stage.alternatives:
        if each.needs_gpu and platform != "gpu":
            left_out[each.name] = _NEEDS_GPU
            continue
        options = {} if each.options is None else served | dict(each.options)
        of_this = int8.for_decoding(weights) if each.int8 else weights
        try:
            lowered = jax.jit(each.program, donate_argnums=stage.donated).lower(of_this, *stage.inputs())
            program = functools.partial(lowered.compile(compiler_options=options), of_this)
            jax.block_until_ready(_turn(stage, program)[0])
        except (RuntimeError, ValueError) as error:  # also JAX's own, and NotImplementedError
            if each.name == SERVED:
                raise
            left_out[each.name] = " ".join(str(error).split())[:_LENGTHIEST_REASON]
        else:
            programs[each.name] = program
    return programs, left_out


def _compared(served: Any, own: Any) -> dict[str, Any]:
    """Equality to the bit; share of equal tokens, or the maximal difference relative to the maximum."""
    pairs = [
        (np.asarray(a), np.asarray(b))
        for a, b in zip(jax.tree.leaves(served), jax.tree.leaves(own), strict=True)
    ]
    texts = pairs[0][0].dtype == np.int32
    wide = [(a.astype(np.float64), b.astype(np.float64)) for a, b in pairs]
    return {
        "equal_bits": all(a.tobytes() == b.tobytes() for a, b in pairs),
        "equal_tokens": float(np.mean(pairs[0][0] == pairs[0][1])) if texts else None,
        "difference": None
        if texts
        else max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)) for a, b in wide),
    }


def decode_runners(bench: Bench, model: ModelUnderTest, rows: Sequence[int], limit: int) -> dict[str, Runner]:
    sizes = {
        f"decode {each}": ProgramSizes(slots=each, rows=(each,), forks=(1,), suffix=len(SUFFIX), limit=limit)
        for each in rows
    }
    compiled = bench.runners(model.config.denoise_steps, list(sizes.values()))
    return {name: compiled[each] for name, each in sizes.items()}


def run(options: argparse.Namespace) -> None:
    """Measure the stages that the record lacks."""
    model = find_model(options.policy, random_weights=True, dtype=None, prompt_tokens=_PROMPT_TOKENS)
    texts = options.text_tokens
    about: dict[str, Any] = {
        "benchmark": "candidates",
        "policy": model.name,
        "dtype": model.config.dtype,
        "device": jax.devices()[0].device_kind,
        "text_tokens": texts,
        "denoise_steps": model.config.denoise_steps,
        "prefix_tokens": model.config.image_tokens + model.bucket,
        "repetitions": options.repetitions,
    }
    rows = _measured_before(options.output, about)
    bench, peaks = Bench(model), find_peaks("auto", model.config.dtype)
    runners = decode_runners(bench, model, sorted({1, texts}), texts)
    costs: dict[str, Any] = {}
    for runner in runners.values():
        costs |= stage_costs(model.config, runner.sizes, model.bucket)
    for stage in stages(runners, model):
        if any(row["stage"] == stage.name for row in rows):
            continue
        floor_ms = peaks.floor_ms(costs[stage.name])
        weights = bench.weights(model.config.denoise_steps)
        rows += [{**row, "floor_ms": floor_ms} for row in measure(stage, weights, options.repetitions)]
        record = {**about, "peaks": dataclasses.asdict(peaks), "rows": rows}
        write_record(record, options.output)
        print(f"{stage.name}: measured", flush=True)


def _measured_before(output: Path, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of an earlier call with the same settings."""
    if not output.exists():
        return []
    record = json.loads(output.read_text(encoding="utf-8"))
    if any(record.get(name) != value for name, value in about.items()):
        raise SystemExit(f"{output} was measured with other settings; give --output another")
    rows: list[dict[str, Any]] = record["rows"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.candidates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--policy", default="small")
    parser.add_argument("--text-tokens", type=int, default=30, help="N; default: 30")
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    use_compile_cache()
    run(options)


if __name__ == "__main__":
    main()
