"""Layers of Gemma's experts as serving uses them: unstacked, cast once, adaRMS vectors precomputed."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from oxygen.typing import Array, Float, Int32, Leaf, Params

Copied = Callable[[np.ndarray], None]
"""Called with each host layer of a parameter after it has been copied; may free it."""


@flax.struct.dataclass
class Layer:
    """The weights of one layer of one expert, each matrix [in, out].

    Attributes:
        qkv: Queries of every head, then keys, then values, [width, (head + 2·kv_head)·dim].
        out: [head·dim, width].
        gate_up: The gated MLP's two input matrices side by side, [width, 2·mlp]; down: [mlp, width].
        before_attention, before_mlp: Norms: a scale [width] in the trunk; in the action expert the adaRMS
            vectors (scale, shift and gate concatenated) of every denoising step, [step, 3·width].
    """

    qkv: Leaf
    out: Leaf
    gate_up: Leaf
    down: Leaf
    before_attention: Leaf
    before_mlp: Leaf

    def at_step(self, step: Int32[Array, ""]) -> "Layer":
        """An action expert's layer at one denoising step: its norms are [3·width]."""
        return dataclasses.replace(
            self,
            before_attention=jax.lax.dynamic_index_in_dim(self.before_attention, step, keepdims=False),
            before_mlp=jax.lax.dynamic_index_in_dim(self.before_mlp, step, keepdims=False),
        )


def unstacked_layers(
    llm: dict[str, Any],
    dtype: str,
    copied: Copied,
    conditions: Float[Array, "step width"] | None = None,
) -> tuple[Layer, ...]:
    """The layers of an expert, unstacked and cast once, so that no program slices weights.

    Args:
        llm: Both experts' parameters; those of this one are removed as they are used.
        dtype: What matrices are cast to.
        copied: See `Copied`.
        conditions: For the action expert, the adaRMS conditioning vector of every time step; None for the
            trunk.
    """
    layers, suffix = llm["layers"], "" if conditions is None else "_1"
    norms = (layers.pop(f"{name}{suffix}") for name in ("pre_attention_norm", "pre_ffw_norm"))
    before_attention, before_mlp = (
        norm["scale"] if conditions is None else _modulations(norm["Dense_0"], conditions, dtype)
        for norm in norms  # one after the other, so that each is freed
    )
    attn, mlp = layers["attn"], layers[f"mlp{suffix}"]
    cast = jnp.dtype(dtype)  # NumPy by itself has no bfloat16
    qkv = _projections(attn, suffix, cast, copied)
    out = _apart(attn.pop(f"attn_vec_einsum{suffix}")["w"], _rows, cast, copied)
    gate_up = _apart(mlp.pop("gating_einsum"), lambda pair: _side_by_side([*pair]), cast, copied)
    down = _apart(mlp.pop("linear"), _rows, cast, copied)
    return tuple(
        Layer(
            qkv=qkv[i],
            out=out[i],
            gate_up=gate_up[i],
            down=down[i],
            before_attention=jnp.asarray(before_attention[i]),
            before_mlp=jnp.asarray(before_mlp[i]),
        )
        for i in range(len(out))
    )


def final_modulation(llm: Params, conditions: Float[Array, "step width"], dtype: str) -> Array:
    """The adaRMS vectors before the action head, [step, 3·width]."""
    dense = jax.tree.map(lambda w: w[None], llm["final_norm_1"]["Dense_0"])
    return _modulations(dense, conditions, dtype)[0]


@functools.partial(jax.jit, static_argnames="dtype")
def _modulations(dense: Params, conditions: Float[Array, "step width"], dtype: str) -> Array:
    kernel, bias = dense["kernel"].astype(dtype), dense["bias"].astype(dtype)
    return jnp.einsum("sc,lcm->lsm", conditions.astype(dtype), kernel) + bias[:, None]


def _projections(attn: dict[str, Any], suffix: str, dtype: np.dtype[Any], copied: Copied) -> list[Array]:
    """Queries, keys and values of all heads as one matrix, layer by layer."""
    if f"qkv_einsum{suffix}" in attn:  # openpi fuses the three where every query head has its own KV head
        fused = attn.pop(f"qkv_einsum{suffix}")["w"]
        heads = lambda three: _side_by_side([head for part in three for head in part])  # noqa: E731
        return _apart(fused, heads, dtype, copied)
    q, kv = attn.pop(f"q_einsum{suffix}")["w"], attn.pop(f"kv_einsum{suffix}")["w"]
    return [
        jax.device_put(_side_by_side([*q[i], *kv[i, 0], *kv[i, 1]]).astype(dtype, copy=False))
        for i in range(q.shape[0])
    ]


def _apart(
    stack: Array | np.ndarray,
    matrix: Callable[[Any], Array | np.ndarray],
    dtype: np.dtype[Any],
    copied: Copied,
) -> list[Array]:
    """The layers of a stack, each as one matrix on the device; waits for each transfer."""
    layers = []
    for i in range(stack.shape[0]):
        on_host = matrix(stack[i]).astype(dtype, copy=False)
        layers.append(jax.block_until_ready(jax.device_put(on_host)))
        if isinstance(stack, np.ndarray) and not np.may_share_memory(on_host, stack):
            copied(stack[i])
    return layers


def _side_by_side(matrices: Sequence[Array | np.ndarray]) -> Array | np.ndarray:
    own = np if isinstance(matrices[0], np.ndarray) else jnp
    return own.concatenate(matrices, axis=1)


def _rows(heads: Array | np.ndarray) -> Array | np.ndarray:
    return heads.reshape(-1, heads.shape[-1])
