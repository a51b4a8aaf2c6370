"""Loads a policy's weights: finds the checkpoint, checks all shapes, reads and casts tensor by tensor."""

import concurrent.futures
import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from configs.progress import stage
from contracts.errors import UsageError, unknown
from oxygen.model import params
from oxygen.model.config import PRESETS, Pi05Config
from oxygen.model.params import Shape
from oxygen.model.pi05 import Weights, consume, prepare
from oxygen.typing import Params
from oxygen.weights.formats import Stored, open_checkpoint
from oxygen.weights.remedies import form_of
from oxygen.weights.source import fetch

DTYPES = ("float32", "bfloat16")
AT_ONCE = 4
"""Tensors read in parallel. Most of the time is decompression, at 1 GB/s per core."""

_FLOATS = ("bfloat16", "float16", "float32", "float64")
_SHOWN = 3
_wanted = functools.cache(params.shapes)

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
    check_parameters(checkpoint.tensors, config, str(source))
    kind = jnp.dtype(dtype)

    def read(path: str) -> np.ndarray:
        array = params.empty_array(checkpoint.tensors[path].shape, kind)
        checkpoint.read(path, array)
        return array

    sizes = {path: math.prod(tensor.shape) for path, tensor in checkpoint.tensors.items()}
    order = sorted(sizes, key=lambda path: -sizes[path])  # temporary memory peaks while few tensors are held
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return params.nested(dict(zip(order, pool.map(read, order), strict=True)))


def check_parameters(stored: Mapping[str, Stored], config: Pi05Config, source: str) -> None:
    """Refuse a checkpoint with other parameters than those of `config`. Reads no tensor.

    Names the first differing paths and the nearest known configuration.
    """
    differences = _differences(stored, _wanted(config))
    if differences and (form := form_of(source, stored.keys() - _wanted(config).keys())):
        raise form
    if differences:
        fits, near = fitting_configs(stored), nearest_config(stored)
        hint = (
            f"It holds those of {' or '.join(map(repr, fits))}"
            if fits
            else f"The nearest known configuration is {near.name!r}: {_agreeing(stored, near)} of its "
            f"{len(_wanted(near))} parameters are there"
        )
        raise UsageError(
            f"{source} does not hold the parameters of {config.name!r}: {'; '.join(differences)}. {hint}"
        )
    for path, tensor in sorted(stored.items()):
        if tensor.dtype not in _FLOATS:
            raise UsageError(
                f"{source} stores {path} as {tensor.dtype}, not as one of {', '.join(_FLOATS)}; give the "
                "checkpoint from which it was quantised"
            )


def fitting_configs(stored: Mapping[str, Stored]) -> list[str]:
    """Known configurations with exactly these parameters."""
    return [name for name, preset in PRESETS.items() if not _differences(stored, _wanted(preset))]


def nearest_config(stored: Mapping[str, Stored]) -> Pi05Config:
    """The known configuration with the most parameters in common with `stored`."""
    return max(PRESETS.values(), key=lambda preset: _agreeing(stored, preset))


def _agreeing(stored: Mapping[str, Stored], config: Pi05Config) -> int:
    return sum(path in stored and stored[path].shape == shape for path, shape in _wanted(config).items())


def _differences(stored: Mapping[str, Stored], wanted: Mapping[str, Shape]) -> list[str]:
    kinds = {
        "missing": sorted(wanted.keys() - stored.keys()),
        "not known": sorted(stored.keys() - wanted.keys()),
        "of another shape": [
            f"{path} {list(stored[path].shape)} instead of {list(wanted[path])}"
            for path in sorted(stored.keys() & wanted.keys())
            if stored[path].shape != wanted[path]
        ],
    }
    return [
        f"{', '.join(paths[:_SHOWN])}{f' and {len(paths) - _SHOWN} more' if len(paths) > _SHOWN else ''} "
        f"{'is' if len(paths) == 1 else 'are'} {kind}"
        for kind, paths in kinds.items()
        if paths
    ]


def load_weights(source: WeightsSource, config: Pi05Config) -> Weights:
    """Load weights for the programs. Parameters created here are freed on the way, which saves memory."""
    count = params.count(config)
    size = f"{count / 1e6:.1f} million parameters, {count * jnp.dtype(config.dtype).itemsize / 1e9:.2g} GB"
    what = f"loading weights: {size}"
    if isinstance(source, int):
        what = f"drawing random weights: {size}, about {params.drawing_seconds(count):.0f} s"
    with stage(what):
        if isinstance(source, int):
            return consume(dict(params.random_params(config, source, config.dtype)), config)
        return consume(dict(source()), config) if callable(source) else prepare(source, config)


def loadable(weights: WeightsSource | None) -> Loadable:
    """The weights for the second process of mode `parallel`, which loads them again; refuses parameters."""
    if isinstance(weights, int) or callable(weights):
        return weights
    raise UsageError(
        "mode 'parallel' loads the weights in a second process: give a seed or a function that loads "
        "them, not the parameters themselves"
    )
