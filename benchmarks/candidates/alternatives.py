"""Alternatives for each stage: as served, other attention, other compiler options, int8 weights."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.candidates.ragged_attention import decode_ragged
from oxygen.model import cached_attention, pi05
from oxygen.model.compiler_options import Options
from oxygen.model.config import Pi05Config
from oxygen.serving import decode

SERVED = "as served"
GRAPHS = "xla_gpu_enable_command_buffer"
_CAPTURED = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"

WITHOUT_GRAPHS: Mapping[str, Options | None] = {"no CUDA graphs": {GRAPHS: ""}}
COMPILATIONS: Mapping[str, Options | None] = {
    "XLA's default options": None,
    **WITHOUT_GRAPHS,
    "CUDA graphs with loops": {GRAPHS: _CAPTURED},
    "loop unrolled": {"xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_FULL_UNROLL"},
    "no autotuning": {"xla_gpu_autotune_level": "0"},
    "latency-hiding scheduler": {"xla_gpu_enable_latency_hiding_scheduler": True},
}
"""Options beside those of serving; None for none at all. All are for GPUs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alternative:
    """One way to compute a stage.

    Attributes:
        name: For tables.
        program: The function to compile; its first argument is the weights.
        options: Compiler options beside those of serving; None for none at all.
        needs_gpu: Whether it runs, or makes sense, only on a GPU.
        int8: Whether it takes int8 weights.
    """

    name: str
    program: Callable[..., Any]
    options: Options | None = dataclasses.field(default_factory=dict)
    needs_gpu: bool = False
    int8: bool = False


def of_prefill(config: Pi05Config) -> Iterator[Alternative]:
    """Arguments: weights, images, prompt, length."""
    program = functools.partial(_prefill, config)
    yield Alternative(name=SERVED, program=program)
    yield from _compiled_otherwise(program, {"XLA's default options": None})


def of_denoise(config: Pi05Config) -> Iterator[Alternative]:
    """Arguments: weights, prefix, noise."""

    def by(implementation: cached_attention.Implementation) -> Callable[..., Any]:
        return functools.partial(pi05.denoise, steps=config.denoise_steps, implementation=implementation)

    served = by(cached_attention.DEFAULT)
    yield Alternative(name=SERVED, program=served)
    yield Alternative(name="jax.nn attention", program=by("xla"))
    yield Alternative(name="cuDNN attention", program=by("cudnn"), needs_gpu=True)
    yield from _compiled_otherwise(served, COMPILATIONS)


def of_decode() -> Iterator[Alternative]:
    """Arguments: weights, rows, pool, texts; the pool is donated."""
    served = functools.partial(_decode, decode.by_device)
    yield Alternative(name=SERVED, program=served)
    yield Alternative(
        name="slots gathered first", program=functools.partial(_decode, decode.decode_all_at_once)
    )
    yield Alternative(
        name="Pallas, ragged", program=functools.partial(_decode, decode_ragged), needs_gpu=True
    )
    yield Alternative(name="int8 weights", program=served, int8=True)
    yield from _compiled_otherwise(served, WITHOUT_GRAPHS)


def _compiled_otherwise(
    program: Callable[..., Any], compilations: Mapping[str, Options | None]
) -> Iterator[Alternative]:
    for name, options in compilations.items():
        yield Alternative(name=name, program=program, options=options, needs_gpu=True)


def _prefill(config: Pi05Config, weights: pi05.Weights, images: Any, prompt: Any, length: Any) -> Any:
    embedded = pi05.embed_prefix(weights, config, images, prompt)
    return pi05.prefill_kv(weights, embedded, length + config.image_tokens)


def _decode(attend: decode.DecodeAttention, weights: pi05.Weights, rows: Any, pool: Any, texts: Any) -> Any:
    return decode.decode(weights, rows, pool, texts, attend=attend)[:2]
