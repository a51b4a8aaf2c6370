"""Loads a policy's parameters: finds the checkpoint, checks all shapes, reads and casts tensor by tensor."""

import concurrent.futures
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from configs.errors import UsageError, nearest_first, unknown
from oxygen.model import host_memory, params
from oxygen.model.config import Pi05Config
from oxygen.typing import Float, Params
from oxygen.weights import layout
from oxygen.weights.layout import Stored
from oxygen.weights.orbax import METADATA, open_orbax
from oxygen.weights.safetensors import SUFFIX, open_safetensors
from oxygen.weights.source import fetch

DTYPES = ("float32", "bfloat16")
AT_ONCE = 4
"""Tensors read in parallel. Most of the time is decompression, at 1 GB/s per core."""
SINGLE_FILE = f"model{SUFFIX}"
"""The tensors in a folder of our format."""

Placement: TypeAlias = jax.Device | jax.sharding.Sharding


@runtime_checkable
class Checkpoint(Protocol):
    """An opened checkpoint, before any tensor is read."""

    @property
    def tensors(self) -> Mapping[str, Stored]:
        """Tensors by openpi's `/`-joined paths."""

    def read(self, path: str, out: Float[np.ndarray, "..."]) -> None:
        """Fill `out`, contiguous and of the tensor's shape, casting to its type piece by piece.

        Raises:
            UsageError: The file is truncated or damaged.
        """


def load(
    source: str | Path, config: Pi05Config, *, dtype: str | None = None, device: Placement | None = None
) -> Params:
    """Load a policy's parameters, in openpi's tree.

    Args:
        source: A checkpoint folder as openpi publishes it (or its `params`), a safetensors file, a folder
            with `model.safetensors`, or a URL of any of these (`gs://`, `https://`), which is cached.
        config: The model configuration.
        dtype: `float32` or `bfloat16`, to which all are cast while they are read; by default the compute type
            of `config`. (openpi also casts every parameter to bfloat16 for serving.)
        device: Destination of each tensor. None leaves them in host memory, as NumPy arrays.

    Returns:
        The tree. Host memory peaks at its size plus a few pieces of 1 MiB, or at its four largest tensors
        if `device` has its own memory.

    Raises:
        UsageError: The checkpoint is missing, unreachable or damaged, or does not fit `config`.
    """
    dtype = dtype or config.dtype
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    checkpoint = open_checkpoint(fetch(source))
    layout.check(checkpoint.tensors, config, str(source))
    return params.nested(_read(checkpoint, jnp.dtype(dtype), device))


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint on disk, of any supported format. Reads no tensor.

    Raises:
        UsageError: There is none, or it is damaged.
    """
    if not path.exists():
        raise UsageError(f"there is no checkpoint at {path}{_neighbours(path)}")
    if path.is_file():
        if path.suffix != SUFFIX:
            raise UsageError(f"{path} is a file, but not one that ends in {SUFFIX}. {_WANTED}")
        return open_safetensors(path)
    if (path / SINGLE_FILE).is_file():
        return open_safetensors(path / SINGLE_FILE)
    for folder in (path, path / "params"):
        if (folder / METADATA).is_file():
            return open_orbax(folder)
    inside = ", ".join(sorted(entry.name for entry in path.iterdir())[:5]) or "nothing"
    raise UsageError(f"{path} is no checkpoint: it holds {inside}. {_WANTED}")


_WANTED = (
    f"A checkpoint is openpi's folder with params/{METADATA}, a folder with {SINGLE_FILE}, or a {SUFFIX} file"
)


def _neighbours(path: Path) -> str:
    """The most similar names in the folder of a missing checkpoint, for an error message."""
    if not path.parent.is_dir():
        return ""
    names = nearest_first(path.name, (entry.name for entry in path.parent.iterdir()))[:3]
    return f"; {path.parent} holds {', '.join(names) or 'nothing'}"


def _read(checkpoint: Checkpoint, dtype: np.dtype[Any], device: Placement | None) -> dict[str, Any]:
    """Read every tensor, the largest first: temporary memory peaks while few tensors are held."""

    def read(path: str) -> Any:
        array = host_memory.empty(checkpoint.tensors[path].shape, dtype)
        checkpoint.read(path, array)
        return array if device is None else jax.block_until_ready(jax.device_put(array, device))

    sizes = {path: math.prod(tensor.shape) for path, tensor in checkpoint.tensors.items()}
    order = sorted(sizes, key=lambda path: -sizes[path])
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(order, pool.map(read, order), strict=True))
