"""Gemma as a mixture of two experts: pure functions over stacked layer weights, for either expert.

The programs walk the same layers and differ only in what a token may attend to, so a layer takes that as an
argument: `attend(q, k, v)` gets the layer's own queries, keys and values and returns the heads' outputs
together with whatever the program wants to keep. Sources: Gemma (arXiv 2403.08295), openpi's mixture.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from oxygen.typing import Array, Bool, Float, Int32, Leaf, Params

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


def rope(
    x: Float[Array, "batch token head dim"], positions: Int32[Array, "batch token"]
) -> Float[Array, "batch token head dim"]:
    """Rotary position embedding over halves of the head, in float32, wavelengths up to 10 000."""
    dim = x.shape[-1]
    timescale = 10_000.0 ** (2.0 / dim * jnp.arange(dim // 2, dtype=jnp.float32))
    radians = positions[..., None, None].astype(jnp.float32) / timescale[None, None, None]
    sin, cos = jnp.sin(radians), jnp.cos(radians)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x.dtype)


@flax.struct.dataclass
class Keys:
    """Something to attend to.

    Attributes:
        k: Keys, [batch, position, kv_head, dim].
        v: Values, of the same shape.
        mask: Which positions each query may see, [batch or 1, query or 1, position].
    """

    k: Leaf
    v: Leaf
    mask: Leaf


def attention(
    q: Float[Array, "batch query head dim"], parts: Sequence[Keys]
) -> Float[Array, "batch query head dim"]:
    """Grouped-query attention over several stretches of keys as if they were one, without joining them."""
    batch, query, heads, dim = q.shape
    kv_heads = parts[0].k.shape[2]
    grouped = q.reshape(batch, query, kv_heads, heads // kv_heads, dim)
    logits = jnp.concatenate([_logits(grouped, part) for part in parts], axis=-1)
    weights = jax.nn.softmax(logits, axis=-1).astype(q.dtype)
    out, start = jnp.zeros_like(grouped), 0
    for part in parts:
        stop = start + part.k.shape[1]
        out = out + jnp.einsum("bkgqs,bskh->bqkgh", weights[..., start:stop], part.v)
        start = stop
    return out.reshape(batch, query, heads, dim)


def _logits(
    grouped: Float[Array, "batch query kv_head group dim"], part: Keys
) -> Float[Array, "batch kv_head group query position"]:
    logits = jnp.einsum("bqkgh,bskh->bkgqs", grouped, part.k, preferred_element_type=jnp.float32)
    return jnp.where(part.mask[:, None, None], logits, _MASKED)


def causal(batch: int, length: int) -> Bool[Array, "batch query position"]:
    """The mask in which each token sees itself and those before it."""
    return jnp.broadcast_to(jnp.tril(jnp.ones((length, length), bool))[None], (batch, length, length))


@flax.struct.dataclass
class Layer:
    """The weights of one layer of one expert.

    Attributes:
        q: [head, width, dim]; k, v: [kv_head, width, dim]; out: [head, dim, width].
        gate, up: The gated MLP's two input matrices, [width, mlp]; down: [mlp, width].
        before_attention, before_mlp: Norms: a scale [width] in the trunk; in the action expert the adaRMS
            vectors (scale, shift and gate side by side) of every denoising step, [step, 3·width].
    """

    q: Leaf
    k: Leaf
    v: Leaf
    out: Leaf
    gate: Leaf
    up: Leaf
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


def trunk_layers(llm: Params, dtype: str) -> tuple[Layer, ...]:
    """The trunk's layers, taken out of their stacks and cast once, so that no program slices weights."""
    layers = llm["layers"]
    norms = layers["pre_attention_norm"]["scale"], layers["pre_ffw_norm"]["scale"]
    return _unstacked(layers, "", norms, dtype)


def expert_layers(llm: Params, conditions: Float[Array, "step width"], dtype: str) -> tuple[Layer, ...]:
    """The action expert's layers, likewise, with the adaRMS vectors of every time step worked out."""
    layers = llm["layers"]
    norms = (
        _modulations(layers["pre_attention_norm_1"]["Dense_0"], conditions, dtype),
        _modulations(layers["pre_ffw_norm_1"]["Dense_0"], conditions, dtype),
    )
    return _unstacked(layers, "_1", norms, dtype)


def final_modulation(llm: Params, conditions: Float[Array, "step width"], dtype: str) -> Array:
    """The adaRMS vectors before the action head, [step, 3·width]."""
    dense = jax.tree.map(lambda w: w[None], llm["final_norm_1"]["Dense_0"])
    return _modulations(dense, conditions, dtype)[0]


@functools.partial(jax.jit, static_argnames="dtype")
def _modulations(dense: Params, conditions: Float[Array, "step width"], dtype: str) -> Array:
    kernel, bias = dense["kernel"].astype(dtype), dense["bias"].astype(dtype)
    return jnp.einsum("sc,lcm->lsm", conditions.astype(dtype), kernel) + bias[:, None]


def _unstacked(
    layers: Params, suffix: str, norms: tuple[Array | np.ndarray, Array | np.ndarray], dtype: str
) -> tuple[Layer, ...]:
    cast = jnp.dtype(dtype)  # NumPy by itself has no bfloat16
    attn, mlp = layers["attn"], layers[f"mlp{suffix}"]
    if f"qkv_einsum{suffix}" in attn:  # openpi fuses the three where every query head has its own KV head
        q, k, v = (attn[f"qkv_einsum{suffix}"]["w"][:, i] for i in range(3))
    else:
        q = attn[f"q_einsum{suffix}"]["w"]
        k, v = (attn[f"kv_einsum{suffix}"]["w"][:, i] for i in range(2))
    out, gating, down = attn[f"attn_vec_einsum{suffix}"]["w"], mlp["gating_einsum"], mlp["linear"]
    return tuple(
        Layer(
            q=q[i].astype(cast),
            k=k[i].astype(cast),
            v=v[i].astype(cast),
            out=out[i].astype(cast),
            gate=gating[i, 0].astype(cast),
            up=gating[i, 1].astype(cast),
            down=down[i].astype(cast),
            before_attention=jnp.asarray(norms[0][i]),
            before_mlp=jnp.asarray(norms[1][i]),
        )
        for i in range(out.shape[0])
    )


def trunk_layer(
    layer: Layer, x: Float[Array, "batch token width"], positions: Int32[Array, "batch token"], attend: Attend
) -> tuple[Float[Array, "batch token width"], Any]:
    """One layer of the trunk; returns its output and what `attend` keeps."""
    mixed, kept = _mix(layer, rms_norm(x, layer.before_attention), positions, attend)
    x = x + mixed
    return x + _mlp(layer, rms_norm(x, layer.before_mlp)), kept


def expert_layer(
    layer: Layer, x: Float[Array, "batch token width"], positions: Int32[Array, "batch token"], attend: Attend
) -> Float[Array, "batch token width"]:
    """One layer of the action expert at one step, its two branches gated by the time."""
    normed, gate = adaptive_rms_norm(x, layer.before_attention)
    mixed, _ = _mix(layer, normed, positions, attend)
    x = x + mixed * gate
    normed, gate = adaptive_rms_norm(x, layer.before_mlp)
    return x + _mlp(layer, normed) * gate


def _mix(
    layer: Layer, x: Float[Array, "batch token width"], positions: Int32[Array, "batch token"], attend: Attend
) -> tuple[Float[Array, "batch token width"], Any]:
    q = rope(jnp.einsum("btd,ndh->btnh", x, layer.q), positions) * layer.q.shape[-1] ** -0.5
    k = rope(jnp.einsum("btd,kdh->btkh", x, layer.k), positions)
    v = jnp.einsum("btd,kdh->btkh", x, layer.v)
    heads, kept = attend(q, k, v)
    return jnp.einsum("btnh,nhd->btd", heads, layer.out), kept


def _mlp(layer: Layer, x: Float[Array, "batch token width"]) -> Float[Array, "batch token width"]:
    return (nn.gelu(x @ layer.gate) * (x @ layer.up)) @ layer.down
