"""`python -m benchmarks.roofline`: each stage of a policy, timed alone, against its minimum time (floor).

The floor is the longer of arithmetic and memory traffic. Times are medians over repetitions; weights are
random. Decoding is timed for one text of each robot, and for N of each: the number of unfinished texts if
each query requests a text of N tokens, and a frame decodes one token of each.

Counts matrix products, attention included, at two operations per multiply-add, and the bytes that must pass
between memory and processor: every weight once per program (once per step in loops, since a step's weights do
not stay in a cache), and the keys and values that are read and written. Does not count norms, rotary
embeddings, softmax and activations, which are small in comparison.
"""

import argparse
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from benchmarks.record import write_record
from configs.exits import OneLineParser, exit_code_of
from contracts.errors import UsageError, pluralize
from eval.bench.measurement import StageTimes, acting_ms, language_ms, median_stages
from eval.bench.serving import SUFFIX, Bench, ModelUnderTest, find_model
from eval.bench.table import digits, open_console
from eval.report.table import Column, Table, to_terminal
from oxygen.model import pi05
from oxygen.model.compile_cache import use_compile_cache
from oxygen.model.config import GemmaConfig, Pi05Config
from oxygen.serving.runner import ProgramSizes

BYTES = {"float32": 4, "bfloat16": 2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Operations and bytes of a stage."""

    flops: float
    bytes: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(flops=self.flops + other.flops, bytes=self.bytes + other.bytes)

    def __mul__(self, times: int) -> "Cost":
        return Cost(flops=self.flops * times, bytes=self.bytes * times)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peaks:
    """Peak arithmetic and bandwidth of a device."""

    flops_per_s: float  # dense matrix products in the compute type, operations per second
    bytes_per_s: float  # memory traffic, reads and writes together
    source: str

    def floor_ms(self, cost: Cost) -> float:
        """Minimum milliseconds of a stage: the longer of arithmetic and traffic, which overlap at best."""
        return 1e3 * max(cost.flops / self.flops_per_s, cost.bytes / self.bytes_per_s)


def stage_costs(config: Pi05Config, sizes: ProgramSizes, prompt: int) -> dict[str, Cost]:
    """The cost of each stage, for prompts padded to `prompt` tokens and half-decoded texts.

    `siglip` and `trunk` make up `prefill`; `decode N` is one token for each of N texts. Guided denoising adds
    a backward pass as expensive as the forward pass; it needs no gradients of weights, keys and values.
    """
    robots, prefix = sizes.robots, config.image_tokens + prompt
    context = prefix + sizes.suffix + sizes.limit // 2
    vision = siglip(config, images=robots * len(config.cameras))
    trunk = trunk_prefill(config, tokens=prefix, robots=robots)
    denoising = denoise(config, prefix=prefix, robots=robots)
    return {
        "siglip": vision,
        "trunk": trunk,
        "prefill": vision + trunk,
        "denoise": denoising,
        "guided denoise": denoising * 2,
        "fork": fork(config, prefix=prefix, suffix=sizes.suffix - 1, requests=sizes.forks[-1]),
        **{f"decode {rows}": decode(config, context=context, rows=rows) for rows in sizes.rows},
    }


def siglip(config: Pi05Config, *, images: int) -> Cost:
    """The vision tower on `images` images, its head included."""
    size, tokens = config.siglip, config.tokens_per_image
    block = 4 * size.width**2 + 2 * size.width * size.mlp_dim
    matrices = size.depth * block + size.width * config.trunk.width
    embeddings = []  # of the patches, by stage: its weights, and the patches of an image it is applied to
    patch, channels, side = size.patch >> len(size.stem), 3, config.image_size
    for width in (*size.stem, size.width):
        side //= patch
        embeddings.append((patch**2 * channels * width, side**2))
        patch, channels = 2, width
    attention = 4 * tokens**2 * size.width * size.depth
    embedding = sum(2 * weights * patches for weights, patches in embeddings)
    return Cost(
        flops=images * (2 * matrices * tokens + embedding + attention),
        bytes=BYTES[config.dtype] * (matrices + sum(weights for weights, _ in embeddings)),
    )


def trunk_prefill(config: Pi05Config, *, tokens: int, robots: int) -> Cost:
    """A prefill of `tokens` tokens of each robot, with only keys and values of the last layer."""
    gemma = config.trunk
    weights, layers = _until_last_kv(gemma), gemma.depth - 1
    return _pass(config, gemma, weights, layers, rows=robots, tokens=tokens, context=tokens, kept=tokens)


def denoise(config: Pi05Config, *, prefix: int, robots: int) -> Cost:
    """All steps of the flow, with the adaRMS vectors precomputed at load."""
    gemma, tokens = config.expert, config.horizon
    weights = _layers(gemma) + 2 * config.action_dim * gemma.width
    context = prefix + tokens
    step = _pass(
        config, gemma, weights, gemma.depth, rows=robots, tokens=tokens, context=context, kept=prefix
    )
    return step * config.denoise_steps


def decode(config: Pi05Config, *, context: int, rows: int) -> Cost:
    """One token for each of `rows` texts that follow `context` tokens."""
    gemma = config.trunk
    weights = _layers(gemma) + config.vocab_size * gemma.width
    return _pass(config, gemma, weights, gemma.depth, rows=rows, tokens=1, context=context, kept=context)


def fork(config: Pi05Config, *, prefix: int, suffix: int, requests: int) -> Cost:
    """Prefill of `suffix` tokens after the prefix, and the prefix's copy into `requests` slots."""
    gemma = config.trunk
    weights, layers = _until_last_kv(gemma) if suffix else 0, gemma.depth - 1
    context, kept = prefix + suffix, 2 * prefix + suffix
    return _pass(config, gemma, weights, layers, rows=requests, tokens=suffix, context=context, kept=kept)


def _pass(
    config: Pi05Config,
    gemma: GemmaConfig,
    weights: int,  # of the matrices that every token is multiplied with
    attending: int,  # layers that attend
    *,
    rows: int,  # robots or texts
    tokens: int,  # of each row
    context: int,  # tokens that each of them attends to
    kept: int,  # tokens of each row whose keys and values are read or written
) -> Cost:
    """A pass of an expert over the tokens of each row."""
    attention = 4 * tokens * context * gemma.num_heads * gemma.head_dim * attending
    keys_and_values = 2 * gemma.depth * gemma.num_kv_heads * gemma.head_dim
    return Cost(
        flops=rows * (2 * weights * tokens + attention),
        bytes=BYTES[config.dtype] * (weights + rows * kept * keys_and_values),
    )


def _layers(gemma: GemmaConfig) -> int:
    """Weights in the matrices of all layers of an expert."""
    attention = gemma.width * gemma.head_dim * 2 * (gemma.num_heads + gemma.num_kv_heads)
    return gemma.depth * (attention + 3 * gemma.width * gemma.mlp_dim)


def _until_last_kv(gemma: GemmaConfig) -> int:
    """The same without those of the last layer, except its keys and values."""
    keys_and_values = 2 * gemma.width * gemma.num_kv_heads * gemma.head_dim
    return _layers(gemma) // gemma.depth * (gemma.depth - 1) + keys_and_values


_NVIDIA = "NVIDIA's data sheet"
_ADA = "NVIDIA's Ada white paper"
_PUBLISHED: Mapping[str, tuple[float, float, str]] = {
    # By JAX's device name: dense bfloat16 with float32 sums in TFLOP/s, memory in GB/s. The first entry that
    # is a prefix of the device's name counts, so longer ones come first.
    "NVIDIA B200": (2250.0, 8000.0, _NVIDIA),
    "NVIDIA H200": (989.4, 4800.0, _NVIDIA),
    "NVIDIA GH200": (989.4, 4000.0, _NVIDIA),
    "NVIDIA H100 PCIe": (756.0, 2000.0, _NVIDIA),
    "NVIDIA H100": (989.4, 3350.0, _NVIDIA),
    "NVIDIA A100-SXM4-40GB": (312.0, 1555.0, _NVIDIA),
    "NVIDIA A100-SXM4-80GB": (312.0, 2039.0, _NVIDIA),
    "NVIDIA A100 80GB PCIe": (312.0, 1935.0, _NVIDIA),
    "NVIDIA L40S": (362.0, 864.0, _NVIDIA),
    "NVIDIA L4": (121.0, 300.0, _NVIDIA),
    "NVIDIA GeForce RTX 5090": (209.5, 1792.0, "NVIDIA's RTX Blackwell white paper"),
    "NVIDIA GeForce RTX 4090": (165.2, 1008.0, _ADA),
    "NVIDIA GeForce RTX 3090": (71.0, 936.2, "NVIDIA's GA102 white paper"),
}


def published(device_kind: str, dtype: str) -> Peaks | None:
    """The published peaks of a device by its JAX name; None if it is not in the table, or not in bfloat16.

    The speed of float32 products on a GPU depends on the requested precision, so it is measured instead.
    """
    if dtype != "bfloat16":
        return None
    for name, (tera, giga, source) in _PUBLISHED.items():
        if device_kind.startswith(name):
            return Peaks(flops_per_s=1e12 * tera, bytes_per_s=1e9 * giga, source=f"published: {source}")
    return None


def measured(dtype: str) -> Peaks:
    """Measured peaks of JAX's default device.

    Arithmetic by a square matrix product; bandwidth by the better of a copy and a matrix-vector product.
    """
    on_cpu = jax.devices()[0].platform == "cpu"
    side, long = (1536, 8192) if on_cpu else (8192, 32_768)
    square = jnp.ones((side, side), dtype)
    matrix = jnp.ones((long, long // 2), dtype)
    vector = jnp.ones((long // 2,), dtype)
    # The shortest of a few runs: disturbances only make a run longer.
    product = min(_seconds(8, jax.jit(jnp.matmul), square, square))
    copy = min(_seconds(8, jax.jit(lambda x: -x), matrix))
    reading = min(_seconds(8, jax.jit(jnp.matmul), matrix, vector))
    size = BYTES[dtype] * matrix.size
    return Peaks(
        flops_per_s=2 * side**3 / product,
        bytes_per_s=max(2 * size / copy, size / reading),
        source="measured: best of matrix products, and of a copy or a matrix by a vector",
    )


def find_peaks(choice: str, dtype: str) -> Peaks:
    """The peaks of JAX's default device: `published`, `measured`, or `auto` (published if known).

    Refuses `published` for a device, or a type, that has none.
    """
    kind = jax.devices()[0].device_kind
    known = None if choice == "measured" else published(kind, dtype)
    if known is None and choice == "published":
        raise UsageError(f"no published peaks of {kind!r} in {dtype}; use --peaks measured")
    return known or measured(dtype)


def _seconds(calls: int, program: Callable[..., Any], *arguments: Any) -> list[float]:
    """Seconds of each call of a program, after a first one that compiles it."""
    jax.block_until_ready(program(*arguments))
    found = []
    for _ in range(calls):
        began = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        found.append(time.perf_counter() - began)
    return found


def measure_roofline(bench: Bench, sizes: ProgramSizes, peaks: Peaks, repetitions: int) -> dict[str, Any]:
    """The roofline of programs of these sizes, as a record has it."""
    config = bench.model.config
    times, tower_ms = _time_stages(bench, sizes, repetitions)
    measured = {name.replace("_", " "): ms for name, ms in median_stages(times).items()}
    measured["siglip"] = tower_ms
    costs = stage_costs(config, sizes, bench.model.bucket)
    return {
        "denoise_steps": config.denoise_steps,
        "text_tokens": sizes.limit,
        "robots": sizes.robots,
        "cameras": len(config.cameras),
        "prefix_tokens": config.image_tokens + bench.model.bucket,
        "stages": [_compared(name, cost, peaks, measured.get(name)) for name, cost in costs.items()],
    }


def _time_stages(bench: Bench, sizes: ProgramSizes, repetitions: int) -> tuple[list[StageTimes], float]:
    """Milliseconds of the programs in each repetition, and of the tower with the prompt's embedding."""
    steps = bench.model.config.denoise_steps
    runner = bench.runners(steps, [sizes])[sizes]
    inputs = runner.blank(bench.model.bucket)
    times: list[StageTimes] = [
        acting_ms(runner, inputs) | language_ms(runner, inputs) for _ in range(1 + repetitions)
    ]
    tower = jax.jit(pi05.embed_prefix, static_argnames="config")
    seconds = _seconds(repetitions, tower, bench.weights(steps), runner.config, inputs.images, inputs.prompt)
    return times[1:], 1e3 * statistics.median(seconds)  # the first calls are slower


def _compared(name: str, cost: Cost, peaks: Peaks, measured_ms: float | None) -> dict[str, Any]:
    """A stage's cost, floor and time; `trunk` is not timed."""
    floor_ms = peaks.floor_ms(cost)
    of_compute = cost.flops / peaks.flops_per_s >= cost.bytes / peaks.bytes_per_s
    return {
        "name": name,
        **dataclasses.asdict(cost),
        "floor_ms": floor_ms,
        "bound": "compute" if of_compute else "memory",
        "measured_ms": measured_ms,
        "measured_over_floor": None if measured_ms is None else measured_ms / floor_ms,
    }


def sizes_of(robots: int, text_tokens: int) -> ProgramSizes:
    """Programs that decode one text of each robot, and as many as a text has tokens."""
    texts = robots * text_tokens
    return ProgramSizes(
        robots=robots,
        slots=texts,
        rows=tuple(sorted({robots, texts})),
        forks=(robots,),
        suffix=len(SUFFIX),
        limit=text_tokens,
        guided=True,
    )


COLUMNS = [
    Column("stage", lambda stage: stage["name"], align="left"),
    Column("GFLOP", lambda stage: stage["flops"] / 1e9, ",.2f"),
    Column("MB", lambda stage: stage["bytes"] / 1e6, ",.1f"),
    Column("bound by", lambda stage: stage["bound"]),
    Column("floor", lambda stage: stage["floor_ms"], digits, unit="ms"),
    Column("measured", lambda stage: stage["measured_ms"], digits, unit="ms"),
    Column("measured / floor", lambda stage: stage["measured_over_floor"], ".2f"),
]


def print_roofline(found: Mapping[str, Any], peaks: Peaks, title: str, console: Console) -> None:
    """Print each stage's floor and time, as a roofline's record has them."""
    work = f"{found['denoise_steps']} denoise steps, N = {found['text_tokens']}"
    whose = f"{pluralize(found['robots'], 'robot')} of {pluralize(found['cameras'], 'camera')}"
    table = Table(columns=COLUMNS, groups=[found["stages"]], title=f"{title}: {work}, {whose}")
    console.print(to_terminal(table))
    tera, giga = peaks.flops_per_s / 1e12, peaks.bytes_per_s / 1e9
    console.print(f"Peaks: {tera:.3g} TFLOP/s, {giga:,.0f} GB/s; {peaks.source}.", style="dim")


def report_roofline(options: argparse.Namespace, model: ModelUnderTest) -> None:
    """Print the roofline for each number of robots, and write them to the output file."""
    peaks, bench, console = find_peaks(options.peaks, model.config.dtype), Bench(model), open_console()
    rooflines = []
    for robots in options.robots:
        sizes = sizes_of(robots, options.text_tokens)
        found = measure_roofline(bench, sizes, peaks, options.repetitions)
        print_roofline(found, peaks, f"{model.name}, {model.config.dtype}", console)
        rooflines.append(found)
    if options.output is not None:
        about = {
            "policy": model.name,
            "dtype": model.config.dtype,
            "device": jax.devices()[0].device_kind,
            "peaks": dataclasses.asdict(peaks),
        }
        write_record({**about, "rooflines": rooflines}, options.output)


def read(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options in `arguments`; by default, of the command line."""
    parser = OneLineParser(prog="python -m benchmarks.roofline", description=__doc__)
    parser.add_argument("--policy", default="small")
    parser.add_argument("--dtype", choices=list(BYTES), help="default: the policy's own")
    parser.add_argument("--robots", type=int, nargs="+", default=[1])
    parser.add_argument("--text-tokens", type=int, default=30)
    parser.add_argument("--prompt-tokens", type=int, default=24)
    parser.add_argument("--repetitions", type=int, default=8)
    choices, about = ("auto", "published", "measured"), "auto: published if known, else measured"
    parser.add_argument("--peaks", default="auto", choices=choices, help=about)
    parser.add_argument("--output", type=Path, help="JSON file; default: none")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure the policy of the command line."""
    options = read()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    use_compile_cache()
    model = find_model(
        options.policy, random_weights=True, dtype=options.dtype, prompt_tokens=options.prompt_tokens
    )
    report_roofline(options, model)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
