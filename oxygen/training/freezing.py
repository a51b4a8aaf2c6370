"""Freezes all parameters that actions depend on, so that texts can be trained without changing actions.

The action expert reads the trunk through each layer's keys and values. What does not contribute to them (the
last layer's query matrix, where it is separate, output projection and MLP, and the final norm) affects only
texts. Training these alone leaves the actions the same to the bit.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from oxygen.typing import Array, Params

_LAST_LAYER_TRAINABLE = {
    "PaliGemma/llm/layers/attn/q_einsum/w",
    "PaliGemma/llm/layers/attn/attn_vec_einsum/w",
    "PaliGemma/llm/layers/pre_ffw_norm/scale",
    "PaliGemma/llm/layers/mlp/gating_einsum",
    "PaliGemma/llm/layers/mlp/linear",
}
_TRAINABLE = {"PaliGemma/llm/final_norm/scale"}
"""Not the tied embedding, through which instructions are read."""


def frozen_for_actions(params: Params) -> Params:
    """The same values; gradients reach only parameters that affect texts alone."""
    return _map_frozen(params, jax.lax.stop_gradient)


def text_only_update(update: Params) -> Params:
    """The optimiser's update, zero for every parameter that actions depend on."""
    return _map_frozen(update, jnp.zeros_like)


def _map_frozen(params: Params, function: Callable[[Array], Array]) -> Params:
    """Apply a function to all parameters, or layers of them, that actions depend on."""

    def mapped(path: Any, leaf: Array) -> Array:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in _TRAINABLE:
            return leaf
        if name in _LAST_LAYER_TRAINABLE:
            return jnp.concatenate([function(leaf[:-1]), leaf[-1:]])
        return function(leaf)

    tree: Any = jax.tree_util.tree_map_with_path(mapped, params)
    return dict(tree)
