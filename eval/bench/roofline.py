"""`--roofline`: times each stage of a policy alone, and compares it with its minimum time (floor).

The floor is the longer of arithmetic and memory traffic. Times are medians over repetitions.

Counts matrix products, attention included, at two operations per multiply-add, and the bytes that must pass
between memory and processor: every weight once per program (once per step in loops, since a step's weights do
not stay in a cache), and the keys and values that are read and written. Does not count norms, rotary
embeddings, softmax and activations, which are small in comparison.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from contracts.errors import UsageError
from eval.bench.measurement import acting_ms, decode_growth, language_ms, median_stages
from eval.bench.options import Options, workloads_of
from eval.bench.row import row_provenance
from eval.bench.serving import SUFFIX, Bench, ModelUnderTest
from eval.bench.table import digits, open_console
from eval.records.json_files import write_json
from eval.report.table import Column, Table, to_terminal
from oxygen.model import pi05
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

    Raises:
        UsageError: There are no published peaks of this device in `dtype`.
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


def report_roofline(options: Options, model: ModelUnderTest) -> int:
    """Print the time and floor of each stage; returns the exit code.

    Decoding is timed for one text of each robot, and for N of each: the number of unfinished texts if each
    query requests a text of N tokens, and a frame decodes one token of each.

    Raises:
        UsageError: The output file holds something else, peaks are unknown, or there are too many cameras.
    """
    path = options.output
    existing = path.read_bytes() if path is not None and path.exists() else b""
    if existing and b'"rooflines":' not in existing:
        raise UsageError(f"{str(path)!r} is not a roofline and is not replaced; give --output another")
    workloads = [(one, model.with_cameras(one.cameras)) for one, _ in workloads_of(options)]
    peaks = find_peaks(options.peaks, model.config.dtype)
    bench, console, records = Bench(model), open_console(), []
    for workload, served in workloads:
        texts = workload.robots * workload.text_tokens
        sizes = ProgramSizes(
            robots=workload.robots,
            slots=texts,
            rows=tuple(sorted({workload.robots, texts})),
            forks=(workload.robots,),
            suffix=len(SUFFIX),
            limit=workload.text_tokens,
            guided=True,
        )
        runner = bench.runners(workload.denoise_steps, [sizes], cameras=workload.cameras)[sizes]
        inputs = runner.blank(served.bucket)
        every = [
            acting_ms(runner, inputs) | language_ms(runner, inputs) for _ in range(1 + workload.repetitions)
        ]
        times = every[1:]  # the first calls are slower
        tower = jax.jit(pi05.embed_prefix, static_argnames="config")
        weights = bench.weights(workload.denoise_steps)
        seconds = _seconds(workload.repetitions, tower, weights, runner.config, inputs.images, inputs.prompt)
        measured = {name.replace("_", " "): ms for name, ms in median_stages(times).items()}
        measured["siglip"] = 1e3 * statistics.median(seconds)  # with the prompt's embedding
        stages: list[dict[str, Any]] = []
        for name, cost in stage_costs(runner.config, sizes, served.bucket).items():
            floor_ms, ms = peaks.floor_ms(cost), measured.get(name)
            of_compute = cost.flops / peaks.flops_per_s >= cost.bytes / peaks.bytes_per_s
            stages.append(
                {
                    "name": name,
                    **dataclasses.asdict(cost),
                    "floor_ms": floor_ms,
                    "bound": "compute" if of_compute else "memory",
                    "measured_ms": ms,
                    "measured_over_floor": None if ms is None else ms / floor_ms,
                }
            )
        cameras = len(served.config.cameras)
        robots = dataclasses.replace(workload, cameras=cameras).robots_and_cameras
        work = f"{workload.denoise_steps} denoise steps, N = {workload.text_tokens}, {robots}"
        print_roofline(stages, peaks, f"{model.name}, {model.config.dtype}: {work}", console)
        record: dict[str, Any] = {
            "denoise_steps": workload.denoise_steps,
            "text_tokens": workload.text_tokens,
            "robots": workload.robots,
            "cameras": cameras,
            "prefix_tokens": served.config.image_tokens + served.bucket,
            "stages": stages,
        }
        if (growth := decode_growth(times)) is not None:
            smallest, largest = sizes.rows
            bounds = growth.ci95
            interval = "" if bounds is None else f" (95 %: {bounds.low:.2f}–{bounds.high:.2f})"
            console.print(
                f"decode {largest} takes {growth.value:.2f} times as long as decode {smallest}{interval}."
            )
            record["decode_growth"] = {"rows": sizes.rows, **dataclasses.asdict(growth)}
        records.append(record)
    if options.output is not None:
        about = {
            "policy": model.name,
            "weights": model.weights_from,
            "dtype": model.config.dtype,
            "device": jax.devices()[0].device_kind,
            "peaks": dataclasses.asdict(peaks),
        }
        write_json(options.output, {**about, **row_provenance(), "rooflines": records})
    return 0


COLUMNS = [
    Column("stage", lambda stage: stage["name"], align="left"),
    Column("GFLOP", lambda stage: stage["flops"] / 1e9, ",.2f"),
    Column("MB", lambda stage: stage["bytes"] / 1e6, ",.1f"),
    Column("bound by", lambda stage: stage["bound"]),
    Column("floor", lambda stage: stage["floor_ms"], digits, unit="ms"),
    Column("measured", lambda stage: stage["measured_ms"], digits, unit="ms"),
    Column("measured / floor", lambda stage: stage["measured_over_floor"], ".2f"),
]


def print_roofline(stages: Sequence[Mapping[str, Any]], peaks: Peaks, title: str, console: Console) -> None:
    """Print each stage's floor and time, as a roofline's record has them."""
    console.print(to_terminal(Table(columns=COLUMNS, groups=[stages], title=title)))
    tera, giga = peaks.flops_per_s / 1e12, peaks.bytes_per_s / 1e9
    console.print(f"Peaks: {tera:.3g} TFLOP/s, {giga:,.0f} GB/s; {peaks.source}.", style="dim")
