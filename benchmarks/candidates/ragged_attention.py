"""Decoding over the KV pool with a Pallas kernel: reads each text's slot in place, up to its length.

Split over positions as in flash decoding, so that a few texts still fill a GPU. The library's own kernels
(`jax.experimental.pallas.ops.gpu.decode_attention`, `paged_attention`) read keys in another layout.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from oxygen.serving import kv_pool
from oxygen.serving.decode import Tokens
from oxygen.serving.kv_pool import KvLayer
from oxygen.typing import Array, Float, Int32

_BLOCK, _SPLITS = 64, 8  # positions of a step, and programs that share a text's positions
_MIN_ROWS = 16  # of a matrix product on tensor cores
_MASKED = -1e30


def decode_ragged(held: KvLayer, tokens: Tokens, *, interpret: bool = False) -> tuple[Array, KvLayer]:
    """A `decode.DecodeAttention`; `interpret` runs the kernel on any device, slowly."""
    held = kv_pool.append_all(held, (tokens.slot, tokens.position), tokens.k, tokens.v)
    heads = _attend(tokens.q[:, 0], held, tokens.slot, tokens.position + 1, interpret=interpret)
    return heads[:, None], held


def _attend(
    q: Float[Array, "row head dim"],
    held: KvLayer,
    slots: Int32[Array, " row"],
    lengths: Int32[Array, " row"],
    *,
    interpret: bool,
) -> Float[Array, "row head dim"]:
    rows, heads, dim = q.shape
    kv_heads, positions = held.k.shape[1], held.k.shape[3]
    group = heads // kv_heads
    padded = max(_MIN_ROWS, pl.next_power_of_2(group))
    grouped = jnp.pad(q.reshape(rows, kv_heads, group, dim), ((0, 0), (0, 0), (0, padded - group), (0, 0)))
    parts = (rows, kv_heads, _SPLITS, padded)
    out, total, top = pl.pallas_call(
        functools.partial(_kernel, block=min(_BLOCK, 1 << (positions.bit_length() - 1))),
        grid=parts[:3],
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((*parts, dim), parts, parts)],
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=interpret,
        name="ragged_decode",
    )(grouped, held.k, held.v, slots, lengths)
    share = jnp.exp(top - jnp.max(top, axis=2, keepdims=True))
    whole = jnp.sum(out * share[..., None], axis=2) / jnp.sum(total * share, axis=2)[..., None]
    return whole[:, :, :group].reshape(q.shape).astype(q.dtype)


def _kernel(
    q_ref: Any, k_ref: Any, v_ref: Any, slot_ref: Any, length_ref: Any, *results: Any, block: int
) -> None:
    """One text's part of the positions, for the query heads of one KV head, with its sum and maximum."""
    row, kv_head, split = (pl.program_id(axis) for axis in range(3))
    slot, length, positions = slot_ref[row], length_ref[row], k_ref.shape[3]
    each = pl.cdiv(pl.cdiv(length, block), _SPLITS)
    q = q_ref[row, kv_head]

    def step(number: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        out, total, top = state
        first = (split * each + number) * block
        at = jnp.minimum(first, positions - block)  # the last block may begin earlier, to end with the slot
        logits = triton.dot(q, k_ref[slot, kv_head, :, pl.ds(at, block)]).astype(jnp.float32)
        here = at + jnp.arange(block, dtype=jnp.int32)
        seen = (here >= first) & (here < length)
        logits = jnp.where(seen[None], logits, _MASKED)
        higher = jnp.maximum(top, jnp.max(logits, axis=1))
        weights = jnp.where(seen[None], jnp.exp(logits - higher[:, None]), 0.0)
        fade = jnp.exp(top - higher)
        v = v_ref[slot, pl.ds(at, block), kv_head, :]
        out = out * fade[:, None] + triton.dot(weights.astype(v.dtype), v).astype(jnp.float32)
        return out, total * fade + jnp.sum(weights, axis=1), higher

    empty = jnp.zeros(q.shape, jnp.float32), jnp.zeros(len(q), jnp.float32), jnp.full(len(q), _MASKED)
    for result, part in zip(results, jax.lax.fori_loop(0, each, step, empty), strict=True):
        result[row, kv_head, split] = part
