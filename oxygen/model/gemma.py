"""Gemma as a mixture of two experts: pure functions over unstacked layer weights, for either expert.

Prefill, denoising and decoding differ only in what tokens attend to. A layer therefore takes a function
`attend(q, k, v)` of its own queries, keys and values, which returns the heads' outputs and anything to keep,
such as the KV cache. Sources: Gemma (arXiv 2403.08295), openpi's mixture of transformers.
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

from oxygen.typing import Array, Bool, Float, Float32, Int32, Leaf, Params

Attend = Callable[[Array, Array, Array], tuple[Array, Any]]


Copied = Callable[[np.ndarray], None]
"""Called with each host layer of a parameter after it has been copied; may free it."""

_MASKED = -2.3819763e38  # Gemma's own: close to float32's lowest, yet finite


@flax.struct.dataclass
class Layer:
    """The weights of one layer of one expert, each matrix [in, out]."""

    qkv: Leaf  # queries of every head, then keys, then values, [width, (head + 2·kv_head)·dim]
    out: Leaf  # [head·dim, width]
    gate_up: Leaf  # the gated MLP's two input matrices side by side, [width, 2·mlp]
    down: Leaf  # [mlp, width]
    # Norms: a scale [width] in the trunk; in the action expert the adaRMS vectors (scale, shift and gate
    # concatenated) of every denoising step, [step, 3·width].
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

    Its parameters are removed from both experts' `llm` as they are used. The action expert has `conditions`,
    the adaRMS conditioning vector of every time step; the trunk has none.
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
    numpy = np if isinstance(matrices[0], np.ndarray) else jnp
    return numpy.concatenate(matrices, axis=1)


def _rows(heads: Array | np.ndarray) -> Array | np.ndarray:
    return heads.reshape(-1, heads.shape[-1])


@flax.struct.dataclass
class RotaryTables:
    """Sines and cosines of the rotary angles, computed once for all layers."""

    sin: Leaf  # [batch, token, 1, dim / 2], in float32, like `cos`
    cos: Leaf

    def scaled(self, by: float) -> "RotaryTables":
        """Tables that also scale the heads by a factor, at no extra cost."""
        return RotaryTables(sin=self.sin * by, cos=self.cos * by)

    def at(self, positions: Int32[Array, "batch token"]) -> "RotaryTables":
        """The entries of some positions of a `rotary_table`; positions beyond its end are clipped."""
        return RotaryTables(
            sin=jnp.take(self.sin[0], positions, axis=0, mode="clip"),
            cos=jnp.take(self.cos[0], positions, axis=0, mode="clip"),
        )


def rotary_table(size: int, dim: int) -> RotaryTables:
    """Tables of positions 0 to `size` - 1, [1, size, 1, dim / 2], as constants of a program.

    Inside a program, XLA would compute the sines again in every layer and for every head.
    """
    timescale = np.float32(10_000.0) ** (np.float32(2.0 / dim) * np.arange(dim // 2, dtype=np.float32))
    radians = np.arange(size, dtype=np.float32)[None, :, None, None] / timescale
    return RotaryTables(sin=jnp.asarray(np.sin(radians)), cos=jnp.asarray(np.cos(radians)))


def rotary_angles(positions: Int32[Array, "batch token"], dim: int) -> RotaryTables:
    """Tables of given positions, with wavelengths up to 10 000, for heads of `dim` channels."""
    timescale = 10_000.0 ** (2.0 / dim * jnp.arange(dim // 2, dtype=jnp.float32))
    radians = positions[..., None, None].astype(jnp.float32) / timescale[None, None, None]
    return RotaryTables(sin=jnp.sin(radians), cos=jnp.cos(radians))


def rope(
    x: Float[Array, "batch token head dim"], angles: RotaryTables
) -> Float[Array, "batch token head dim"]:
    """Rotary position embedding (arXiv 2104.09864): rotates the halves of every head, in float32."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate(
        [first * angles.cos - second * angles.sin, second * angles.cos + first * angles.sin], axis=-1
    )
    return rotated.astype(x.dtype)


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


def attention(
    q: Float[Array, "batch query head dim"],
    k: Float[Array, "batch position kv_head dim"],
    v: Float[Array, "batch position kv_head dim"],
    mask: Bool[Array, "batch query_or_1 position"],
) -> Float[Array, "batch query head dim"]:
    """Grouped-query attention to what each query may see, with logits and softmax in float32."""
    return attention_transposed(q, k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3), mask)


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
    equation: str,
    rows: Float[Array, "matrix row inner"],
    of_heads: Float[Array, "batch kv_head inner column"],
) -> Float32[Array, "matrix row column"]:
    """Batched matrix product over rows and KV heads, accumulated in float32."""
    matrices = of_heads.reshape(-1, *of_heads.shape[2:])
    return jnp.einsum(equation, rows, matrices, preferred_element_type=jnp.float32)


def attention_single_row(
    q: Float[Array, "query head dim"],
    k: Float[Array, "kv_head dim position"],
    v: Float[Array, "position kv_head dim"],
    mask: Bool[Array, "query position"],
) -> Float[Array, "query head dim"]:
    """The same for one row, as plain matrix products: on a CPU, XLA is slower at batched ones."""
    outputs = []
    for head, group in enumerate(jnp.split(q, k.shape[0], axis=1)):  # which share one KV head
        flat = group.reshape(-1, group.shape[-1])
        logits = jnp.einsum("gh,hs->gs", flat, k[head], preferred_element_type=jnp.float32)
        scores = jnp.where(mask[:, None], logits.reshape(*group.shape[:2], -1), _MASKED)
        weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype).reshape(len(flat), -1)
        outputs.append((weights @ v[:, head]).reshape(group.shape))
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
    """One layer of the action expert at one denoising step, whose branches are gated by adaRMS.

    Takes and returns what `trunk_layer` does.
    """
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
