"""The parameters of π0.5: openpi's paths and shapes; initial values for training, random ones for tests."""

import concurrent.futures
import functools
import math
import mmap
import os
import time
import zlib
from collections.abc import Mapping
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from oxygen.model.config import GemmaConfig, Pi05Config
from oxygen.model.siglip import Siglip
from oxygen.typing import Float, Float32, Params

Shape = tuple[int, ...]

_PAGE_BYTES = mmap.PAGESIZE
_DRAWN_AT_ONCE = 1 << 18  # random numbers sampled in one piece (1 MiB)


def tower(config: Pi05Config) -> Siglip:
    """The vision tower of `config`, as a flax module."""
    return Siglip(config=config.siglip, out_width=config.trunk.width, dtype=config.dtype)


@functools.cache
def shapes(config: Pi05Config) -> Mapping[str, Shape]:
    """Path (`/`-joined, as in openpi's checkpoints) to shape, of every parameter. Allocates nothing."""
    llm = {
        "embedder/input_embedding": (config.vocab_size, config.trunk.width),
        "final_norm/scale": (config.trunk.width,),
        **_dense("final_norm_1/Dense_0", config.expert.width, 3 * config.expert.width),
        **_layer_shapes(config.trunk, ""),
        **_layer_shapes(config.expert, "_1"),
    }
    width, side = config.expert.width, config.image_size
    images = jax.ShapeDtypeStruct((1, side, side, 3), jnp.uint8)
    tree = jax.eval_shape(tower(config).init, jax.random.key(0), images)["params"]
    of_tower: dict[str, Any] = flax.traverse_util.flatten_dict(tree, sep="/")
    return {
        **{f"PaliGemma/img/{path}": leaf.shape for path, leaf in of_tower.items()},
        **{f"PaliGemma/llm/{path}": shape for path, shape in llm.items()},
        **_dense("action_in_proj", config.action_dim, width),
        **_dense("action_out_proj", width, config.action_dim),
        **_dense("time_mlp_in", width, width),
        **_dense("time_mlp_out", width, width),
    }


def _dense(path: str, rows: int, columns: int, *stack: int) -> dict[str, Shape]:
    return {f"{path}/kernel": (*stack, rows, columns), f"{path}/bias": (*stack, columns)}


def _layer_shapes(gemma: GemmaConfig, suffix: str) -> dict[str, Shape]:
    depth, width, heads, dim = gemma.depth, gemma.width, gemma.num_heads, gemma.head_dim
    own_kv = {f"qkv_einsum{suffix}/w": (depth, 3, heads, width, dim)}
    shared_kv = {
        f"q_einsum{suffix}/w": (depth, heads, width, dim),
        f"kv_einsum{suffix}/w": (depth, 2, gemma.num_kv_heads, width, dim),
    }
    attn = {
        f"attn_vec_einsum{suffix}/w": (depth, heads, dim, width),
        **(own_kv if gemma.num_kv_heads == heads else shared_kv),
    }
    mlp = {"gating_einsum": (depth, 2, width, gemma.mlp_dim), "linear": (depth, gemma.mlp_dim, width)}
    norms: dict[str, Shape] = {}
    for norm in ("pre_attention_norm", "pre_ffw_norm"):
        if suffix:
            norms |= _dense(f"{norm}{suffix}/Dense_0", width, 3 * width, depth)
        else:
            norms[f"{norm}/scale"] = (depth, width)
    return {
        **{f"layers/attn/{path}": shape for path, shape in attn.items()},
        **{f"layers/mlp{suffix}/{path}": shape for path, shape in mlp.items()},
        **{f"layers/{path}": shape for path, shape in norms.items()},
    }


def count(config: Pi05Config) -> int:
    """The number of parameters."""
    return sum(math.prod(shape) for shape in shapes(config).values())


def drawing_seconds(count: int) -> float:
    """Roughly how long `random_params` takes for so many, by drawing a few here."""
    began = time.perf_counter()
    np.random.default_rng(0).standard_normal(_DRAWN_AT_ONCE, dtype=np.float32)
    return count / _DRAWN_AT_ONCE * (time.perf_counter() - began) / (os.cpu_count() or 1)


def nested(flat: Mapping[str, object]) -> Params:
    """The tree whose paths are the keys of `flat`."""
    return flax.traverse_util.unflatten_dict(dict(flat), sep="/")


def random_params(config: Pi05Config, seed: int, dtype: str = "float32") -> Params:
    """Random parameters, each a function of the seed and its path alone, cast one by one.

    For runs without a checkpoint, not for training: attention is sharp, residual branches are large and gates
    are open, so that actions and texts depend on the observation. (openpi initialises the gates to 0, which
    makes an untrained action expert ignore its input.)
    """
    wanted = shapes(config)

    def sampled(path: str) -> Float[np.ndarray, "..."]:
        """One parameter, sampled and cast piece by piece: in float32 the largest has 5 GB."""
        shape = wanted[path]
        if path.endswith(("bias", "scale", "pos_embedding")):
            deviation = 0.1
        elif path.endswith("input_embedding"):
            deviation = 0.25 / math.sqrt(shape[-1])
        else:
            joined = 3 if path.endswith("embedding/kernel") else 2 if "attn_vec_einsum" in path else 1
            fan_in = math.prod(shape[-1 - joined : -1])
            deviation = (2.0 if "_einsum" in path else 1.0) / math.sqrt(fan_in)
        array, rng = empty_array(shape, jnp.dtype(dtype)), _generator(seed, path)
        flat = array.reshape(-1)
        for start in range(0, flat.size, _DRAWN_AT_ONCE):
            piece = flat[start : start + _DRAWN_AT_ONCE]
            piece[...] = rng.standard_normal(piece.size, dtype=np.float32) * np.float32(deviation)
        return array

    order = sorted(wanted, key=lambda path: -math.prod(wanted[path]))  # the largest takes longest
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return nested(dict(zip(order, pool.map(sampled, order), strict=True)))


def initial_params(config: Pi05Config, seed: int) -> Params:
    """Random float32 parameters for training, each a function of the seed and its path alone.

    Matrices preserve variance, output projections into the residual stream shrink with depth, and norms start
    as the identity. The action expert's adaRMS gates start at 1: from openpi's initial 0 (meant for an expert
    added to a trained trunk) its layers get no gradient until the gates have moved.
    """
    initial = {}
    for path, shape in shapes(config).items():
        in_norm = "norm" in path.lower()
        if (in_norm and not path.endswith("kernel")) or path.endswith("bias"):
            values = np.zeros(shape, np.float32)
            if in_norm and path.endswith("Dense_0/bias"):  # adaRMS: scale, shift and gate
                values[..., 2 * shape[-1] // 3 :] = 1.0
            elif in_norm and "/img/" in path and path.endswith("scale"):
                values += 1.0  # Gemma stores scales as offsets from 1, SigLIP does not
        else:
            values = standard_normal(seed, path, shape) * np.float32(_initial_deviation(path, shape, config))
        initial[path] = values
    return nested(initial)


def _initial_deviation(path: str, shape: Shape, config: Pi05Config) -> float:
    if path.endswith("pos_embedding"):
        return 0.1
    # "norm": adaRMS modulation by the flow time
    if "norm" in path or path.endswith("action_out_proj/kernel"):
        return 0.1 / math.sqrt(shape[-2])
    if path.endswith("input_embedding"):
        return 1.0 / math.sqrt(shape[-1])
    fan_in = shape[-2]
    if path.endswith("embedding/kernel") or "/stem/" in path:
        fan_in = math.prod(shape[:3])
    elif "attn_vec_einsum" in path or path.endswith("out/kernel"):  # [layer, head, dim, width]
        fan_in = math.prod(shape[-3:-1])
    elif path.endswith(("query/kernel", "key/kernel", "value/kernel")):
        fan_in = shape[-3]
    into_residual = 1.0  # output projections shrink with depth
    if path.endswith(("attn_vec_einsum/w", "attn_vec_einsum_1/w", "mlp/linear", "mlp_1/linear")):
        into_residual = 1.0 / math.sqrt(2.0 * config.trunk.depth)
    elif "encoderblock" in path and path.endswith(("out/kernel", "Dense_1/kernel")):
        into_residual = 1.0 / math.sqrt(2.0 * config.siglip.depth)
    return into_residual / math.sqrt(fan_in)


def standard_normal(seed: int, path: str, shape: Shape) -> Float32[np.ndarray, "..."]:
    """Standard normal numbers as a function of the seed and a path, equal on every machine."""
    return _generator(seed, path).standard_normal(shape, dtype=np.float32)


def _generator(seed: int, path: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32(path.encode())]))


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An array in its own memory pages, aligned so that a CPU device does not copy it."""
    size = math.prod(shape)
    # Shared memory, mmap's default, is not freed by `release_memory`.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    pages = mmap.mmap(-1, max(1, size * dtype.itemsize), flags=private)
    return np.frombuffer(pages, dtype, size).reshape(shape)


def release_memory(part: Any) -> None:
    """Return a part's memory to the system; its values become zeros.

    Frees whole pages, and only of arrays made by `empty_array`; has no effect on others.
    """
    pages = part
    while isinstance(pages, np.ndarray):
        pages = pages.base
    pages = pages.obj if isinstance(pages, memoryview) else None
    if not isinstance(pages, mmap.mmap) or not part.flags.c_contiguous:
        return
    start = part.ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    first, last = -(-start // _PAGE_BYTES), (start + part.nbytes) // _PAGE_BYTES
    if last > first:
        pages.madvise(mmap.MADV_DONTNEED, first * _PAGE_BYTES, (last - first) * _PAGE_BYTES)
