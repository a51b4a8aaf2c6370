"""The KV pool of texts in progress: preallocated arrays with one slot per request.

A slot holds the prefix of the request's query, its suffix, and the decoded tokens. Programs that write to the
pool donate it, so it is updated in place.
"""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from oxygen.model.config import Pi05Config
from oxygen.serving.sampler import SamplingState
from oxygen.typing import Array, Int32, Leaf

NOTHING = -1
"""Marks tokens not written yet."""

_ALIGNED = 16  # slots are padded to a multiple of this many positions, for aligned loads


@flax.struct.dataclass
class KvLayer:
    """Keys and values of every slot in one layer."""

    k: Leaf  # [slot, kv_head, dim, position], transposed for the matrix products
    v: Leaf  # [slot, position, kv_head, dim]


KvPool = tuple[KvLayer, ...]
"""The layers' keys and values, in separate arrays so that products read a layer in place."""


@flax.struct.dataclass
class DecodeState:
    """Decode state of every slot. Small and never donated: the host reads it while decoding continues."""

    token: Leaf  # the next input token (the suffix's last, then the last one decoded), [slot]
    position: Leaf  # its position in the slot, [slot]
    count: Leaf  # tokens decoded so far, [slot]
    written: Leaf  # the decoded tokens, [slot, limit], padded with `NOTHING`
    draws: SamplingState | None = None  # sampling state; None if all requests are greedy
    # The first token, where the fork chooses it, [slot]; None where the first decode step does.
    first: Leaf | None = None


def allocate(config: Pi05Config, *, slots: int, capacity: int) -> KvPool:
    """An empty pool whose slots hold the longest prefix and `capacity` positions after it.

    One spare slot follows the `slots`: padding rows of a batch write there.
    """
    trunk = config.trunk
    needed = config.image_tokens + config.max_prompt + capacity
    positions = -(-needed // _ALIGNED) * _ALIGNED
    heads, dim = trunk.num_kv_heads, trunk.head_dim
    return tuple(
        KvLayer(
            k=jnp.zeros((slots + 1, heads, dim, positions), config.dtype),
            v=jnp.zeros((slots + 1, positions, heads, dim), config.dtype),
        )
        for _ in range(trunk.depth)
    )


def empty_decode_state(
    *, slots: int, limit: int, sampled: bool = False, first_by_fork: bool = False
) -> DecodeState:
    """The decode state of `slots` idle slots and the spare one, for texts of up to `limit` tokens."""
    slots += 1
    draws = SamplingState(
        key=jnp.zeros((slots, 2), jnp.uint32),
        temperature=jnp.zeros((slots,), jnp.float32),
        top_k=jnp.zeros((slots,), jnp.int32),
    )
    return DecodeState(
        token=jnp.zeros((slots,), jnp.int32),
        position=jnp.zeros((slots,), jnp.int32),
        count=jnp.zeros((slots,), jnp.int32),
        written=jnp.full((slots, limit), NOTHING, jnp.int32),
        draws=draws if sampled else None,
        first=jnp.zeros((slots,), jnp.int32) if first_by_fork else None,
    )


def begin(layer: KvLayer, slots: Int32[Array, " row"], k: Array, v: Array) -> KvLayer:
    """Fill slots with [row, position, kv_head, dim] and clear the rest of them."""
    rest = ((0, 0), (0, layer.v.shape[1] - v.shape[1]), (0, 0), (0, 0))
    k, v = jnp.pad(k, rest), jnp.pad(v, rest)
    return KvLayer(k=layer.k.at[slots].set(jnp.moveaxis(k, 1, 3)), v=layer.v.at[slots].set(v))


def append(layer: KvLayer, slots: Array, positions: Array, k: Array, v: Array) -> KvLayer:
    """Write [row, token, kv_head, dim] in slots from some positions on; what exceeds their end is dropped."""
    every = positions[:, None] + jnp.arange(k.shape[1], dtype=jnp.int32)[None]
    return KvLayer(
        k=layer.k.at[slots[:, None], :, :, every].set(k, mode="drop"),
        v=layer.v.at[slots[:, None], every].set(v, mode="drop"),
    )


def start(
    texts: DecodeState,
    slots: Int32[Array, " row"],
    token: Array,
    position: Array,
    draws: SamplingState | None,
    first: Array | None,
) -> DecodeState:
    """Start texts in `slots`, with `token` at `position` as the first input."""
    return DecodeState(
        token=texts.token.at[slots].set(token),
        position=texts.position.at[slots].set(position),
        count=texts.count.at[slots].set(0),
        written=texts.written.at[slots].set(NOTHING),
        draws=jax.tree.map(lambda all_, new: all_.at[slots].set(new), texts.draws, draws),
        first=None if texts.first is None or first is None else texts.first.at[slots].set(first),
    )


def write(texts: DecodeState, slots: Int32[Array, " row"], token: Int32[Array, " row"]) -> DecodeState:
    """Append a token to every row; tokens beyond the limit are dropped."""
    count, position = texts.count[slots], texts.position[slots]
    return dataclasses.replace(
        texts,
        token=texts.token.at[slots].set(token),
        position=texts.position.at[slots].set(position + 1),
        count=texts.count.at[slots].set(count + 1),
        written=texts.written.at[slots, count].set(token, mode="drop"),
    )
