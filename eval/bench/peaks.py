"""Peak arithmetic and bandwidth of devices: published for well-known GPUs, measured for others."""

import time
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from configs.errors import UsageError
from eval.bench.costs import BYTES, Peaks

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
    product = _best_s(jax.jit(jnp.matmul), square, square)
    copy = _best_s(jax.jit(lambda x: -x), matrix)
    reading = _best_s(jax.jit(jnp.matmul), matrix, vector)
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


def _best_s(program: Callable[..., jax.Array], *arguments: jax.Array) -> float:
    """The shortest of a few runs, in seconds; disturbances only make a run longer."""
    jax.block_until_ready(program(*arguments))
    seconds = []
    for _ in range(8):
        began = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        seconds.append(time.perf_counter() - began)
    return min(seconds)
