"""Keys and values of texts in progress: one preallocated array each, with a slot per request.

A slot's positions hold the prefix of the request's query, its suffix, then what was written.
Programs that write the pool take it over (donation), so nothing is ever copied to be extended.
"""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from oxygen.model.config import Pi05Config
from oxygen.serving.drawing import Draws
from oxygen.typing import Array, Float, Int32, Leaf

NOTHING = -1
"""Stands where no token has been written."""

_ALIGNED = 16
"""Positions of a slot come in these: what processors load at once, or several times that."""


@flax.struct.dataclass
class KvLayer:
    """Keys and values of every slot in one layer.

    Attributes:
        k: [slot, kv_head, dim, position]: turned as products with queries read them.
        v: [slot, position, kv_head, dim].
    """

    k: Leaf
    v: Leaf


@flax.struct.dataclass
class KvPool:
    """The same of every layer: arrays apart, so that a product can read a layer where it lies."""

    layers: tuple[KvLayer, ...]


@flax.struct.dataclass
class Texts:
    """How far every slot's text has come. Small, and never donated: the host reads it while decoding goes on.

    Attributes:
        token: The token to be read next (the suffix's last, then the last one written), [slot].
        position: Where in the pool that token goes, [slot].
        count: Tokens written so far, [slot].
        written: The tokens themselves, [slot, limit]; `NOTHING` where none has been written yet.
        draws: How the tokens are drawn, where any request does not simply take the best.
    """

    token: Leaf
    position: Leaf
    count: Leaf
    written: Leaf
    draws: Draws | None = None


def allocate(config: Pi05Config, *, slots: int, room: int) -> KvPool:
    """An empty pool whose slots hold the longest prefix and `room` positions after it.

    There is one slot more than `slots`, the spare one behind them: rows that pad a batch write there.
    """
    trunk = config.trunk
    needed = config.image_tokens + config.max_prompt + room
    positions = -(-needed // _ALIGNED) * _ALIGNED
    heads, dim = trunk.num_kv_heads, trunk.head_dim
    return KvPool(
        layers=tuple(
            KvLayer(
                k=jnp.zeros((slots + 1, heads, dim, positions), config.dtype),
                v=jnp.zeros((slots + 1, positions, heads, dim), config.dtype),
            )
            for _ in range(trunk.depth)
        )
    )


def no_texts(*, slots: int, limit: int, drawn: bool = False) -> Texts:
    """The texts of `slots` idle slots and the spare one, which may grow to `limit` tokens."""
    slots += 1
    draws = Draws(
        key=jnp.zeros((slots, 2), jnp.uint32),
        temperature=jnp.zeros((slots,), jnp.float32),
        top_k=jnp.zeros((slots,), jnp.int32),
    )
    return Texts(
        token=jnp.zeros((slots,), jnp.int32),
        position=jnp.zeros((slots,), jnp.int32),
        count=jnp.zeros((slots,), jnp.int32),
        written=jnp.full((slots, limit), NOTHING, jnp.int32),
        draws=draws if drawn else None,
    )


def turned(k: Float[Array, "*rows position kv_head dim"]) -> Float[Array, "*rows kv_head dim position"]:
    """Keys as the pool holds them."""
    return jnp.moveaxis(k, -3, -1)


def begin(layer: KvLayer, slot: Int32[Array, ""], k: Array, v: Array) -> KvLayer:
    """Begin a slot with [position, kv_head, dim], and clear what comes after it."""
    size = k.shape[0]
    rest = jnp.zeros((layer.v.shape[1] - size, *v.shape[1:]), v.dtype)
    layer = append(layer, (slot, jnp.int32(0)), k, v)
    return append(layer, (slot, jnp.int32(size)), rest, rest)


def begin_all(layer: KvLayer, slots: Int32[Array, " row"], k: Array, v: Array) -> KvLayer:
    """The same for many slots at once, [row, position, kv_head, dim]."""
    rest = ((0, 0), (0, layer.v.shape[1] - v.shape[1]), (0, 0), (0, 0))
    k, v = jnp.pad(k, rest), jnp.pad(v, rest)
    return KvLayer(k=layer.k.at[slots].set(turned(k)), v=layer.v.at[slots].set(v))


def append(layer: KvLayer, at: tuple[Array, Array], k: Array, v: Array) -> KvLayer:
    """Write [token, kv_head, dim] from `at` = (slot, position) on; moved back where room ends."""
    slot, position = at
    return KvLayer(
        k=jax.lax.dynamic_update_slice(layer.k, turned(k)[None], (slot, 0, 0, position)),
        v=jax.lax.dynamic_update_slice(layer.v, v[None], (slot, position, 0, 0)),
    )


def append_all(layer: KvLayer, at: tuple[Array, Array], k: Array, v: Array) -> KvLayer:
    """The same for many slots at once, [row, token, kv_head, dim]; what finds no room is dropped."""
    slots, positions = at
    every = positions[:, None] + jnp.arange(k.shape[1], dtype=jnp.int32)[None]
    return KvLayer(
        k=layer.k.at[slots[:, None], :, :, every].set(k, mode="drop"),
        v=layer.v.at[slots[:, None], every].set(v, mode="drop"),
    )


def row(layer: KvLayer, slot: Int32[Array, ""]) -> tuple[Array, Array]:
    """One slot: keys [kv_head, dim, position], values [position, kv_head, dim]."""
    return (
        jax.lax.dynamic_index_in_dim(layer.k, slot, keepdims=False),
        jax.lax.dynamic_index_in_dim(layer.v, slot, keepdims=False),
    )


def rows(layer: KvLayer, slots: Int32[Array, " row"]) -> tuple[Array, Array]:
    """The same of many slots, [row, ...] each: a copy."""
    return layer.k[slots], layer.v[slots]


def start(
    texts: Texts, slots: Int32[Array, " row"], token: Array, position: Array, draws: Draws | None
) -> Texts:
    """Begin texts in `slots` with nothing written, to read `token` at `position` first."""
    return Texts(
        token=texts.token.at[slots].set(token),
        position=texts.position.at[slots].set(position),
        count=texts.count.at[slots].set(0),
        written=texts.written.at[slots].set(NOTHING),
        draws=jax.tree.map(lambda all_, new: all_.at[slots].set(new), texts.draws, draws),
    )


def write(texts: Texts, slots: Int32[Array, " row"], token: Int32[Array, " row"]) -> Texts:
    """Note one more token of every row; beyond the limit it is forgotten."""
    count, position = texts.count[slots], texts.position[slots]
    return dataclasses.replace(
        texts,
        token=texts.token.at[slots].set(token),
        position=texts.position.at[slots].set(position + 1),
        count=texts.count.at[slots].set(count + 1),
        written=texts.written.at[slots, count].set(token, mode="drop"),
    )
