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
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from benchmarks.record import write_record
from eval.bench.measurement import in_turns, ratio_fields
from eval.bench.roofline import find_peaks, stage_costs
from eval.bench.serving import SUFFIX, Bench, ModelUnderTest, find_model
from oxygen.model import int8, pi05
from oxygen.model.compile_cache import Options, compiler_options, use_compile_cache
from oxygen.model.config import Pi05Config
from oxygen.model.pi05 import Weights
from oxygen.serving import decode, kv_pool
from oxygen.serving.decode import Tokens
from oxygen.serving.kv_pool import KvLayer
from oxygen.serving.requests import Request
from oxygen.serving.runner import ProgramSizes, Runner
from oxygen.typing import Array, Float, Int32

SERVED = "as served"
_GRAPHS = "xla_gpu_enable_command_buffer"
_CAPTURED = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"
COMPILATIONS: Mapping[str, Options | None] = {
    "XLA's default options": None,
    "no CUDA graphs": {_GRAPHS: ""},
    "CUDA graphs with loops": {_GRAPHS: _CAPTURED},
    "loop unrolled": {"xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_FULL_UNROLL"},
    "no autotuning": {"xla_gpu_autotune_level": "0"},
    "latency-hiding scheduler": {"xla_gpu_enable_latency_hiding_scheduler": True},
}
"""Options beside those of serving; None for none at all. All are for GPUs."""
_PROMPT_TOKENS = 24
_CALLS = 3  # calls of prefill and denoise in a turn
_LENGTHIEST_REASON = 160


@dataclasses.dataclass(frozen=True)
class Alternative:
    """One way to compute a stage."""

    program: Callable[..., Any]  # the function to compile; its first argument is the weights
    # Compiler options beside those of serving; None for none at all.
    options: Options | None = dataclasses.field(default_factory=dict)
    needs_gpu: bool = False  # whether it runs, or makes sense, only on a GPU
    int8: bool = False  # whether it takes int8 weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage with its alternatives."""

    name: str  # `prefill`, `denoise` or `decode B`
    alternatives: Mapping[str, Alternative]  # by name; the first one is as served
    # Arguments after the weights, made anew for each turn; the pool of decode steps is donated.
    inputs: Callable[[], tuple[Any, ...]]
    # Calls in a turn. Decode steps follow on one another, queued at once, as in serving.
    calls: int = _CALLS
    decodes: bool = False  # whether it is a decode step


def stages(runners: Mapping[str, Runner], model: ModelUnderTest) -> Iterator[Stage]:
    """All stages; `runners` by the names of their decode stages."""
    runner = next(iter(runners.values()))
    config, blank = runner.config, runner.blank(model.bucket)
    prefix = runner.prefill(blank)
    shape = (1, config.horizon, config.action_dim)
    noise = jnp.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))

    def denoise(implementation: pi05.Implementation) -> Callable[..., Any]:
        return functools.partial(pi05.denoise, steps=config.denoise_steps, implementation=implementation)

    yield Stage(
        name="denoise",
        alternatives={
            SERVED: Alternative(denoise(pi05.DEFAULT_ATTENTION)),
            "jax.nn attention": Alternative(denoise("xla")),
            "cuDNN attention": Alternative(denoise("cudnn"), needs_gpu=True),
            **_compiled_otherwise(denoise(pi05.DEFAULT_ATTENTION), *COMPILATIONS),
        },
        inputs=lambda: (prefix, noise),
    )
    served = functools.partial(_decode, decode.by_device)
    gathered = functools.partial(_decode, decode.decode_all_at_once)
    ragged = functools.partial(_decode, decode_ragged)
    for name, of_batch in runners.items():
        yield Stage(
            name=name,
            alternatives={
                SERVED: Alternative(served),
                "slots gathered first": Alternative(gathered),
                "Pallas, ragged": Alternative(ragged, needs_gpu=True),
                "int8 weights": Alternative(served, int8=True),
                **_compiled_otherwise(served, "no CUDA graphs"),
            },
            inputs=functools.partial(_texts_begun, of_batch, prefix),
            calls=of_batch.sizes.limit,
            decodes=True,
        )
    prefill = functools.partial(_prefill, config)
    arguments = tuple(map(jnp.asarray, dataclasses.astuple(blank)))
    yield Stage(
        name="prefill",
        alternatives={
            SERVED: Alternative(prefill),
            **_compiled_otherwise(prefill, "XLA's default options"),
        },
        inputs=lambda: arguments,
    )


def _compiled_otherwise(program: Callable[..., Any], *names: str) -> dict[str, Alternative]:
    return {name: Alternative(program, COMPILATIONS[name], needs_gpu=True) for name in names}


def _prefill(config: Pi05Config, weights: Weights, images: Any, prompt: Any, length: Any) -> Any:
    embedded = pi05.embed_prefix(weights, config, images, prompt)
    return pi05.prefill_kv(weights, embedded, length + config.image_tokens)


def _decode(attend: decode.DecodeAttention, weights: Weights, rows: Any, pool: Any, texts: Any) -> Any:
    return decode.decode(weights, rows, pool, texts, attend=attend)[:2]


def _texts_begun(runner: Runner, prefix: Any) -> tuple[Any, ...]:
    """The rows, pool and texts of a full batch, forked one by one."""
    state = runner.empty()
    slots = range(runner.sizes.slots)
    for slot in slots:
        new = runner.new_requests([Request(slot=slot, robot=0, suffix=SUFFIX, seed=slot, query=0, task=0)])
        state = runner.fork(prefix, new, *state)
    return jnp.asarray(slots, jnp.int32), *state


def measure(stage: Stage, weights: Weights, repetitions: int) -> list[dict[str, Any]]:
    """A row for each alternative: its times, and its result compared with that of serving."""
    compiled = {name: _compiled(stage, each, weights) for name, each in stage.alternatives.items()}
    if isinstance(reason := compiled[SERVED], str):
        raise SystemExit(f"{stage.name} cannot be compiled as served: {reason}")
    turns = {
        name: functools.partial(_turn, stage, program)
        for name, program in compiled.items()
        if not isinstance(program, str)
    }
    results = {name: turn()[0] for name, turn in turns.items()}  # and warms up
    *_, measured = in_turns(turns, repetitions)
    rows: list[dict[str, Any]] = []
    for name, program in compiled.items():
        row: dict[str, Any] = {"stage": stage.name, "alternative": name}
        if isinstance(program, str):
            row |= {"left_out": program}
        else:
            ms, served_ms = ([ms for _, ms in measured[each]] for each in (name, SERVED))
            row |= {"ms": ms, "ms_median": statistics.median(ms)}
            row |= ratio_fields("served_over_this", served_ms, ms)
            row |= _compared(results[SERVED], results[name])
        rows.append(row)
    return rows


def _turn(stage: Stage, program: Callable[..., Any]) -> tuple[Any, float]:
    """The result of a turn, and milliseconds of a call."""
    inputs = result = jax.block_until_ready(stage.inputs())
    began = time.perf_counter()
    for _ in range(stage.calls):
        if stage.decodes:
            inputs = (inputs[0], *program(*inputs))
        else:
            result = jax.block_until_ready(program(*inputs))
    if stage.decodes:
        rows, _, texts = inputs
        result = jax.block_until_ready(texts.written[rows])
    return result, 1e3 * (time.perf_counter() - began) / stage.calls


def _compiled(stage: Stage, alternative: Alternative, weights: Weights) -> Callable[..., Any] | str:
    """The program, bound to its weights, or why it cannot be compiled."""
    platform = jax.default_backend()
    if alternative.needs_gpu and platform != "gpu":
        return "needs a GPU"
    served = compiler_options(platform)
    options = {} if alternative.options is None else {**served, **alternative.options}
    of_this = int8.for_decoding(weights) if alternative.int8 else weights
    donated = (2,) if stage.decodes else ()
    try:
        lowered = jax.jit(alternative.program, donate_argnums=donated).lower(of_this, *stage.inputs())
        program = functools.partial(lowered.compile(compiler_options=options), of_this)
        jax.block_until_ready(_turn(stage, program)[0])
    except (RuntimeError, ValueError) as error:  # also JAX's own, and NotImplementedError
        return " ".join(str(error).split())[:_LENGTHIEST_REASON]
    return program


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


# Decoding over the KV pool with a Pallas kernel: reads each text's slot in place, up to its length. Split
# over positions as in flash decoding, so that a few texts still fill a GPU. The library's own kernels
# (`jax.experimental.pallas.ops.gpu.decode_attention`, `paged_attention`) read keys in another layout.
_BLOCK, _SPLITS = 64, 8  # positions of a step, and programs that share a text's positions
_MIN_ROWS = 16  # of a matrix product on tensor cores
_MASKED = -1e30


def decode_ragged(held: KvLayer, tokens: Tokens, *, interpret: bool = False) -> tuple[Array, KvLayer]:
    """A `decode.DecodeAttention`; `interpret` runs the kernel on any device, slowly."""
    held = kv_pool.append_all(held, (tokens.slot, tokens.position), tokens.k, tokens.v)
    heads = _attend(tokens.q[:, 0], held, tokens.slot, tokens.position + 1, interpret=interpret)
    return heads[:, None], held


def _attend(
    q: Float[Array, "row head dim"],
    held: KvLayer,
    slots: Int32[Array, " row"],
    lengths: Int32[Array, " row"],
    *,
    interpret: bool,
) -> Float[Array, "row head dim"]:
    rows, heads, dim = q.shape
    kv_heads, positions = held.k.shape[1], held.k.shape[3]
    group = heads // kv_heads
    padded = max(_MIN_ROWS, pl.next_power_of_2(group))
    grouped = jnp.pad(q.reshape(rows, kv_heads, group, dim), ((0, 0), (0, 0), (0, padded - group), (0, 0)))
    parts = (rows, kv_heads, _SPLITS, padded)
    out, total, top = pl.pallas_call(
        functools.partial(_kernel, block=min(_BLOCK, 1 << (positions.bit_length() - 1))),
        grid=parts[:3],
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((*parts, dim), parts, parts)],
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=interpret,
        name="ragged_decode",
    )(grouped, held.k, held.v, slots, lengths)
    share = jnp.exp(top - jnp.max(top, axis=2, keepdims=True))
    whole = jnp.sum(out * share[..., None], axis=2) / jnp.sum(total * share, axis=2)[..., None]
    return whole[:, :, :group].reshape(q.shape).astype(q.dtype)


def _kernel(
    q_ref: Any, k_ref: Any, v_ref: Any, slot_ref: Any, length_ref: Any, *results: Any, block: int
) -> None:
    """One text's part of the positions, for the query heads of one KV head, with its sum and maximum."""
    row, kv_head, split = (pl.program_id(axis) for axis in range(3))
    slot, length, positions = slot_ref[row], length_ref[row], k_ref.shape[3]
    each = pl.cdiv(pl.cdiv(length, block), _SPLITS)
    q = q_ref[row, kv_head]

    def step(number: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        out, total, top = state
        first = (split * each + number) * block
        at = jnp.minimum(first, positions - block)  # the last block may begin earlier, to end with the slot
        logits = triton.dot(q, k_ref[slot, kv_head, :, pl.ds(at, block)]).astype(jnp.float32)
        here = at + jnp.arange(block, dtype=jnp.int32)
        seen = (here >= first) & (here < length)
        logits = jnp.where(seen[None], logits, _MASKED)
        higher = jnp.maximum(top, jnp.max(logits, axis=1))
        weights = jnp.where(seen[None], jnp.exp(logits - higher[:, None]), 0.0)
        fade = jnp.exp(top - higher)
        v = v_ref[slot, pl.ds(at, block), kv_head, :]
        out = out * fade[:, None] + triton.dot(weights.astype(v.dtype), v).astype(jnp.float32)
        return out, total * fade + jnp.sum(weights, axis=1), higher

    empty = jnp.zeros(q.shape, jnp.float32), jnp.zeros(len(q), jnp.float32), jnp.full(len(q), _MASKED)
    for result, part in zip(results, jax.lax.fori_loop(0, each, step, empty), strict=True):
        result[row, kv_head, split] = part


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
