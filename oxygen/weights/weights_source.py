"""Sources of a policy's weights: a seed, a function that loads them, or arrays."""

import math
from collections.abc import Callable

import jax.numpy as jnp

from configs.errors import UsageError
from configs.stages import stage
from oxygen.model.config import Pi05Config
from oxygen.model.params import random_params, shapes
from oxygen.model.pi05 import Weights, consume, prepare
from oxygen.typing import Params

Loadable = int | Callable[[], Params]
"""The seed of random parameters, or a function that loads parameters in openpi's layout."""

WeightsSource = Loadable | Params
"""The same, or the parameters themselves."""


def load_weights(source: WeightsSource, config: Pi05Config) -> Weights:
    """Load weights for the programs. Parameters created here are freed on the way, which saves memory."""
    count = sum(math.prod(shape) for shape in shapes(config).values())
    size = f"{count / 1e6:.1f} million parameters, {count * jnp.dtype(config.dtype).itemsize / 1e9:.2g} GB"
    what = "drawing random weights" if isinstance(source, int) else "loading weights"
    with stage(f"{what}: {size}"):
        return _loaded(source, config)


def _loaded(source: WeightsSource, config: Pi05Config) -> Weights:
    if isinstance(source, int):
        return consume(dict(random_params(config, source, config.dtype)), config)
    return consume(dict(source()), config) if callable(source) else prepare(source, config)


def loadable(source: WeightsSource) -> Loadable | None:
    """The source if another process can load it again; None for parameters."""
    return source if isinstance(source, int) or callable(source) else None


def required(weights: Loadable | None) -> Loadable:
    """The weights for the second process of mode `parallel`.

    Raises:
        UsageError: They cannot be loaded again.
    """
    if weights is None:
        raise UsageError(
            "mode 'parallel' loads the weights in a second process: give a seed or a function that loads "
            "them, not the parameters themselves"
        )
    return weights
