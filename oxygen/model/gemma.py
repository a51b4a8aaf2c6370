"""Gemma as a mixture of two experts: pure functions over stacked layer weights, for either expert.

Prefill, denoising and decoding differ only in what tokens attend to. A layer therefore takes a function
`attend(q, k, v)` of its own queries, keys and values, which returns the heads' outputs and anything to keep,
such as the KV cache. Sources: Gemma (arXiv 2403.08295), openpi's mixture of transformers.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from oxygen.model.layers import Layer
from oxygen.model.rotary import RotaryTables, rope
from oxygen.typing import Array, Bool, Float, Float32, Leaf

Attend = Callable[[Array, Array, Array], tuple[Array, Any]]

_MASKED = -2.3819763e38  # Gemma's own: close to float32's lowest, yet finite


def _normed(x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
    wide = x.astype(jnp.float32)
    return wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + 1e-6)


def rms_norm(
    x: Float[Array, "batch token width"], scale: Float[Array, " width"]
) -> Float[Array, "batch token width"]:
    """RMS normalisation with float32 statistics; the stored scale is an offset from one."""
    return (_normed(x) * (1.0 + scale.astype(jnp.float32))[None, None]).astype(x.dtype)


def adaptive_rms_norm(
    x: Float[Array, "batch token width"], modulation: Float[Array, " three_width"]
) -> tuple[Float[Array, "batch token width"], Float[Array, "1 1 width"]]:
    """RMS normalisation scaled and shifted by the time step, and the gate of the residual branch."""
    scale, shift, gate = jnp.split(modulation[None, None], 3, axis=-1)
    y = _normed(x) * (1.0 + scale.astype(jnp.float32)) + shift.astype(jnp.float32)
    return y.astype(x.dtype), gate.astype(x.dtype)


@flax.struct.dataclass
class KeyValues:
    """Keys and values to attend to, with their mask."""

    k: Leaf  # keys, [batch, position, kv_head, dim]
    v: Leaf  # values, of the same shape
    mask: Leaf  # which positions each query may see, [batch, query or 1, position]


def attention(
    q: Float[Array, "batch query head dim"], keys: KeyValues
) -> Float[Array, "batch query head dim"]:
    """Grouped-query attention, with logits and softmax in float32."""
    return attention_transposed(q, keys.k.transpose(0, 2, 3, 1), keys.v.transpose(0, 2, 1, 3), keys.mask)


def attention_transposed(
    q: Float[Array, "batch query head dim"],
    k: Float[Array, "batch kv_head dim position"],
    v: Float[Array, "batch kv_head position dim"],
    mask: Bool[Array, "batch query_or_1 position"],
) -> Float[Array, "batch query head dim"]:
    """The same with keys and values in the layout of the matrix products, so that none is transposed.

    Query heads that share a KV head form one matrix; rows and KV heads form one batch. The mask is added, and
    the softmax's sums divide the outputs rather than the weights. On a CPU, the logits then need no separate
    passes outside XLA's matrix library.
    """
    batch, query, heads, dim = q.shape
    kv_heads = k.shape[1]
    grouped = q.reshape(batch, query, kv_heads, heads // kv_heads, dim).transpose(0, 2, 1, 3, 4)
    flat = grouped.reshape(batch * kv_heads, -1, dim)
    # Without the barrier, XLA materialises the mask for every logit instead of broadcasting it.
    unseen = jax.lax.optimization_barrier(jnp.where(mask, 0.0, _MASKED))
    if mask.shape[1] > 1:
        unseen = jnp.repeat(unseen, heads // kv_heads, axis=1)
    unseen = jnp.repeat(unseen, kv_heads, axis=0)
    logits = _products("bqh,bhs->bqs", flat, k) + unseen
    weights = jnp.exp(logits - jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True)))
    out = _products("bqs,bsh->bqh", weights.astype(q.dtype), v)
    out = (out / jnp.sum(weights, axis=-1, keepdims=True)).astype(q.dtype)
    return out.reshape(grouped.shape).transpose(0, 2, 1, 3, 4).reshape(q.shape)


def _products(
    format_option: str,
    rows: Float[Array, "matrix row inner"],
    of_heads: Float[Array, "batch kv_head inner column"],
) -> Float32[Array, "matrix row column"]:
    """Batched matrix product over rows and KV heads, accumulated in float32."""
    matrices = of_heads.reshape(-1, *of_heads.shape[2:])
    return jnp.einsum(format_option, rows, matrices, preferred_element_type=jnp.float32)


def attention_single_row(
    q: Float[Array, "query head dim"], *parts: KeyValues
) -> Float[Array, "query head dim"]:
    """The same for one row, over several parts, as plain matrix products.

    Here a part's `k` is [kv_head, dim, position], `v` [position, kv_head, dim], `mask` [query, position].

    On a CPU, XLA reads these in place; for batched products it copies and transposes the keys.
    """
    outputs = []
    for head, group in enumerate(jnp.split(q, parts[0].k.shape[0], axis=1)):  # which share one KV head
        flat, scores = group.reshape(-1, group.shape[-1]), []
        for part in parts:
            logits = jnp.einsum("gh,hs->gs", flat, part.k[head], preferred_element_type=jnp.float32)
            scores.append(jnp.where(part.mask[:, None], logits.reshape(*group.shape[:2], -1), _MASKED))
        weights = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1).astype(q.dtype)
        weights, out, start = weights.reshape(len(flat), -1), jnp.zeros_like(flat), 0
        for part in parts:
            stop = start + part.v.shape[0]
            out = out + weights[:, start:stop] @ part.v[:, head]
            start = stop
        outputs.append(out.reshape(group.shape))
    return jnp.concatenate(outputs, axis=1)


def trunk_layer(
    layer: Layer, x: Float[Array, "batch token width"], angles: RotaryTables, attend: Attend
) -> tuple[Float[Array, "batch token width"], Any]:
    """One layer of the trunk; returns its output and the second result of `attend`."""
    mixed, kept = _mix(layer, rms_norm(x, layer.before_attention), angles, attend)
    x = x + mixed
    return x + _mlp(layer, rms_norm(x, layer.before_mlp)), kept


def keys_and_values(
    layer: Layer, x: Float[Array, "batch token width"], angles: RotaryTables
) -> tuple[Float[Array, "batch token kv_head dim"], Float[Array, "batch token kv_head dim"]]:
    """Keys and values of a trunk layer whose output is not needed."""
    dim = 2 * angles.sin.shape[-1]
    both = rms_norm(x, layer.before_attention) @ layer.qkv[:, layer.out.shape[0] :]
    k, v = jnp.split(both.reshape(*x.shape[:2], -1, dim), 2, axis=2)
    return rope(k, angles), v


def expert_layer(
    layer: Layer, x: Float[Array, "batch token width"], angles: RotaryTables, attend: Attend
) -> tuple[Float[Array, "batch token width"], Any]:
    """One layer of the action expert at one denoising step, with adaRMS-gated branches; likewise."""
    normed, gate = adaptive_rms_norm(x, layer.before_attention)
    mixed, kept = _mix(layer, normed, angles, attend)
    x = x + mixed * gate
    normed, gate = adaptive_rms_norm(x, layer.before_mlp)
    return x + _mlp(layer, normed) * gate, kept


def _mix(
    layer: Layer, x: Float[Array, "batch token width"], angles: RotaryTables, attend: Attend
) -> tuple[Float[Array, "batch token width"], Any]:
    dim = 2 * angles.sin.shape[-1]
    every = (x @ layer.qkv).reshape(*x.shape[:2], -1, dim)
    heads = layer.out.shape[0] // dim
    kv_heads = (every.shape[2] - heads) // 2
    q, k, v = jnp.split(every, (heads, heads + kv_heads), axis=2)
    mixed, kept = attend(rope(q, angles.scaled(dim**-0.5)), rope(k, angles), v)
    return mixed.reshape(*x.shape[:2], -1) @ layer.out, kept


def _mlp(layer: Layer, x: Float[Array, "batch token width"]) -> Float[Array, "batch token width"]:
    gate, up = jnp.split(x @ layer.gate_up, 2, axis=-1)
    return (nn.gelu(gate) * up) @ layer.down
