"""The most a device can do: published for well-known GPUs, measured for every other device."""

import time
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from configs.errors import UsageError
from eval.bench.costs import BYTES, Peaks

_NVIDIA = "NVIDIA's data sheet"
_ADA = "NVIDIA's Ada white paper"
_PUBLISHED: Mapping[str, tuple[float, float, str]] = {
    # As JAX names the device: dense bfloat16 with float32 sums in TFLOP/s, memory in GB/s. The first name
    # that the device's own begins with counts, so longer ones stand first.
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
    """The peaks of a device that JAX names `device_kind`; None if it is not in the table, or not in bfloat16.

    What float32 products do on a GPU depends on the precision asked for, so that is measured instead.
    """
    if dtype != "bfloat16":
        return None
    for name, (tera, giga, source) in _PUBLISHED.items():
        if device_kind.startswith(name):
            return Peaks(flops_per_s=1e12 * tera, bytes_per_s=1e9 * giga, source=f"published: {source}")
    return None


def measured(dtype: str) -> Peaks:
    """The peaks of JAX's default device, by a square matrix product and by whatever moves the most bytes.

    That is the better of a copy, which reads and writes, and a matrix by a vector, which reads alone.
    """
    on_cpu = jax.devices()[0].platform == "cpu"
    side, long = (1536, 8192) if on_cpu else (8192, 32_768)
    square = jnp.ones((side, side), dtype)
    sheet = jnp.ones((long, long // 2), dtype)
    row = jnp.ones((long // 2,), dtype)
    product = _best_s(jax.jit(jnp.matmul), square, square)
    copy = _best_s(jax.jit(lambda x: -x), sheet)
    reading = _best_s(jax.jit(jnp.matmul), sheet, row)
    size = BYTES[dtype] * sheet.size
    return Peaks(
        flops_per_s=2 * side**3 / product,
        bytes_per_s=max(2 * size / copy, size / reading),
        source="measured: best of matrix products, and of a copy or a matrix by a vector",
    )


def peaks(choice: str, dtype: str) -> Peaks:
    """The peaks of JAX's default device: `published`, `measured`, or `auto`: published where known.

    Raises:
        UsageError: Nothing is published of this device in `dtype`.
    """
    kind = jax.devices()[0].device_kind
    known = None if choice == "measured" else published(kind, dtype)
    if known is None and choice == "published":
        raise UsageError(f"no published peaks of {kind!r} in {dtype}; use --peaks measured")
    return known or measured(dtype)


def _best_s(program: Callable[..., jax.Array], *arguments: jax.Array) -> float:
    """The shortest of a few runs, in seconds; what disturbs a run only makes it longer."""
    jax.block_until_ready(program(*arguments))
    seconds = []
    for _ in range(8):
        began = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        seconds.append(time.perf_counter() - began)
    return min(seconds)
