"""Freezes all parameters that actions depend on, so that texts can be trained without changing actions.

The action expert reads the trunk through each layer's keys and values. What does not contribute to them (the
last layer's query matrix, where it is separate, output projection and MLP, and the final norm) affects only
texts. Training these alone leaves the actions the same to the bit.
"""

import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from oxygen.typing import Array, Params


class Trainable(enum.Enum):
    """Which layers of a stacked parameter are trained."""

    NONE = enum.auto()
    LAST_LAYER = enum.auto()
    ALL = enum.auto()


_TEXT_ONLY = {
    "PaliGemma/llm/layers/attn/q_einsum/w": Trainable.LAST_LAYER,
    "PaliGemma/llm/layers/attn/attn_vec_einsum/w": Trainable.LAST_LAYER,
    "PaliGemma/llm/layers/pre_ffw_norm/scale": Trainable.LAST_LAYER,
    "PaliGemma/llm/layers/mlp/gating_einsum": Trainable.LAST_LAYER,
    "PaliGemma/llm/layers/mlp/linear": Trainable.LAST_LAYER,
    "PaliGemma/llm/final_norm/scale": Trainable.ALL,
}
"""The tied embedding is not listed: instructions are read through it."""


def frozen_for_actions(params: Params) -> Params:
    """The same values; gradients reach only parameters that affect texts alone."""
    return _map_trainable(params, _stop_gradient)


def text_only_update(update: Params) -> Params:
    """The optimiser's update, zero for every parameter that actions depend on."""
    return _map_trainable(update, _mask)


def _map_trainable(params: Params, function: Callable[[Trainable, Array], Array]) -> Params:
    mapped: Any = jax.tree_util.tree_map_with_path(
        lambda path, leaf: function(
            _TEXT_ONLY.get(jax.tree_util.keystr(path, simple=True, separator="/"), Trainable.NONE), leaf
        ),
        params,
    )
    return dict(mapped)


def _stop_gradient(trainable: Trainable, leaf: Array) -> Array:
    match trainable:
        case Trainable.ALL:
            return leaf
        case Trainable.LAST_LAYER:
            return jnp.concatenate([jax.lax.stop_gradient(leaf[:-1]), leaf[-1:]])
        case Trainable.NONE:
            return jax.lax.stop_gradient(leaf)


def _mask(trainable: Trainable, leaf: Array) -> Array:
    match trainable:
        case Trainable.ALL:
            return leaf
        case Trainable.LAST_LAYER:
            return leaf.at[:-1].set(0.0)
        case Trainable.NONE:
            return jnp.zeros_like(leaf)
