"""Loads a policy's weights: finds the checkpoint, checks all shapes, reads and casts tensor by tensor."""

import concurrent.futures
import math
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from configs.errors import UsageError, nearest_first, stage, unknown
from oxygen.model import params
from oxygen.model.config import Pi05Config
from oxygen.model.pi05 import Weights, consume, prepare
from oxygen.typing import Params
from oxygen.weights import layout
from oxygen.weights.layout import Checkpoint
from oxygen.weights.orbax import METADATA, open_orbax
from oxygen.weights.safetensors import SUFFIX, open_safetensors
from oxygen.weights.source import fetch

DTYPES = ("float32", "bfloat16")
AT_ONCE = 4
"""Tensors read in parallel. Most of the time is decompression, at 1 GB/s per core."""
SINGLE_FILE = f"model{SUFFIX}"
"""The tensors in a folder of our format."""

Loadable = int | Callable[[], Params]
"""The seed of random parameters, or a function that loads parameters in openpi's layout."""

WeightsSource = Loadable | Params
"""The same, or the parameters themselves."""


def load(source: str | Path, config: Pi05Config, *, dtype: str | None = None) -> Params:
    """Load a policy's parameters, in openpi's tree.

    Args:
        source: A checkpoint folder as openpi publishes it (or its `params`), a safetensors file, a folder
            with `model.safetensors`; or a `gs://` URL of any of these or an `https://` URL of a file, cached.
        config: The model configuration.
        dtype: `float32` or `bfloat16`, to which all are cast while they are read; by default the compute type
            of `config`. (openpi also casts every parameter to bfloat16 for serving.)

    Returns:
        The tree, of NumPy arrays. Host memory peaks at its size plus a few pieces of 1 MiB.

    Raises:
        UsageError: The checkpoint is missing, unreachable or damaged, or does not fit `config`.
    """
    dtype = dtype or config.dtype
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    checkpoint = open_checkpoint(fetch(source))
    layout.check(checkpoint.tensors, config, str(source))
    kind = jnp.dtype(dtype)

    def read(path: str) -> np.ndarray:
        array = params.empty_array(checkpoint.tensors[path].shape, kind)
        checkpoint.read(path, array)
        return array

    sizes = {path: math.prod(tensor.shape) for path, tensor in checkpoint.tensors.items()}
    order = sorted(sizes, key=lambda path: -sizes[path])  # temporary memory peaks while few tensors are held
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return params.nested(dict(zip(order, pool.map(read, order), strict=True)))


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint on disk, of any supported format. Reads no tensor.

    Raises:
        UsageError: There is none, or it is damaged.
    """
    if not path.exists():
        near = ""
        if path.parent.is_dir():
            names = nearest_first(path.name, (entry.name for entry in path.parent.iterdir()))[:3]
            near = f"; {path.parent} holds {', '.join(names) or 'nothing'}"
        raise UsageError(f"there is no checkpoint at {path}{near}")
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
    raise UsageError(f"{path} is not a checkpoint: it holds {inside}. {_WANTED}")


_WANTED = (
    f"A checkpoint is openpi's folder with params/{METADATA}, a folder with {SINGLE_FILE}, or a {SUFFIX} file"
)


def load_weights(source: WeightsSource, config: Pi05Config) -> Weights:
    """Load weights for the programs. Parameters created here are freed on the way, which saves memory."""
    count = sum(math.prod(shape) for shape in params.shapes(config).values())
    size = f"{count / 1e6:.1f} million parameters, {count * jnp.dtype(config.dtype).itemsize / 1e9:.2g} GB"
    what = "drawing random weights" if isinstance(source, int) else "loading weights"
    with stage(f"{what}: {size}"):
        if isinstance(source, int):
            return consume(dict(params.random_params(config, source, config.dtype)), config)
        return consume(dict(source()), config) if callable(source) else prepare(source, config)


def loadable(weights: WeightsSource | None) -> Loadable:
    """The weights for the second process of mode `parallel`, which loads them again.

    Raises:
        UsageError: They are parameters, or None.
    """
    if isinstance(weights, int) or callable(weights):
        return weights
    raise UsageError(
        "mode 'parallel' loads the weights in a second process: give a seed or a function that loads "
        "them, not the parameters themselves"
    )
