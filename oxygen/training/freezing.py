"""The part of a model that only texts pass through, so that it can be trained while everything else stays.

Actions read the trunk through every layer's keys and values. What comes after those of the last layer (its
queries where they are a matrix of their own, its output, its MLP, the norm before the scores) no action ever
sees: trained by itself, it changes what is said, and not one bit of what is done.
"""

import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from oxygen.typing import Array, Params


class Learning(enum.Enum):
    """How much of a parameter is trained."""

    NOTHING = enum.auto()
    LAST_LAYER = enum.auto()
    ALL = enum.auto()


_OF_TEXTS = {
    "PaliGemma/llm/layers/attn/q_einsum/w": Learning.LAST_LAYER,
    "PaliGemma/llm/layers/attn/attn_vec_einsum/w": Learning.LAST_LAYER,
    "PaliGemma/llm/layers/pre_ffw_norm/scale": Learning.LAST_LAYER,
    "PaliGemma/llm/layers/mlp/gating_einsum": Learning.LAST_LAYER,
    "PaliGemma/llm/layers/mlp/linear": Learning.LAST_LAYER,
    "PaliGemma/llm/final_norm/scale": Learning.ALL,
}
"""Embeddings are not among them, though they score words: instructions are read by the same ones."""


def held(params: Params) -> Params:
    """The same parameters, but gradients reach only those that no action sees."""
    return _by_path(params, _held)


def changing_texts_alone(change: Params) -> Params:
    """What is added to the parameters, with zero for all that actions see."""
    return _by_path(change, _kept)


def _by_path(params: Params, done: Callable[[Learning, Array], Array]) -> Params:
    changed: Any = jax.tree_util.tree_map_with_path(
        lambda path, leaf: done(
            _OF_TEXTS.get(jax.tree_util.keystr(path, simple=True, separator="/"), Learning.NOTHING), leaf
        ),
        params,
    )
    return dict(changed)


def _held(learning: Learning, leaf: Array) -> Array:
    match learning:
        case Learning.ALL:
            return leaf
        case Learning.LAST_LAYER:
            return jnp.concatenate([jax.lax.stop_gradient(leaf[:-1]), leaf[-1:]])
        case Learning.NOTHING:
            return jax.lax.stop_gradient(leaf)


def _kept(learning: Learning, leaf: Array) -> Array:
    match learning:
        case Learning.ALL:
            return leaf
        case Learning.LAST_LAYER:
            return leaf.at[:-1].set(0.0)
        case Learning.NOTHING:
            return jnp.zeros_like(leaf)
