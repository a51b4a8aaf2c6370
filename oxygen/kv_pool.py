"""Where texts in progress keep their keys and values: one preallocated array each, and a slot per request.

A slot's positions hold the prefix of the query the request was born in, its suffix, then what was written.
Programs that write the pool are given it for good (donated), so nothing is ever copied to be extended.
"""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from oxygen.config import Pi05Config
from oxygen.drawing import Draws
from oxygen.typing import Array, Float, Int32, Leaf

NOTHING = -1
"""Stands where no token has been written."""


@flax.struct.dataclass
class KvPool:
    """Keys and values of every slot.

    Attributes:
        k: [layer, slot, kv_head, dim, position]: turned as products with queries read them.
        v: [layer, slot, position, kv_head, dim].
    """

    k: Leaf
    v: Leaf


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
    positions = config.image_tokens + config.max_prompt + room
    heads, dim = trunk.num_kv_heads, trunk.head_dim
    return KvPool(
        k=jnp.zeros((trunk.depth, slots + 1, heads, dim, positions), config.dtype),
        v=jnp.zeros((trunk.depth, slots + 1, positions, heads, dim), config.dtype),
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


def plant(pool: KvPool, at: tuple[int, Array], k: Array, v: Array) -> KvPool:
    """Begin the row `at` = (layer, slot) with [position, kv_head, dim], and clear what comes after it."""
    size = k.shape[0]
    rest = jnp.zeros((pool.v.shape[2] - size, *v.shape[1:]), v.dtype)
    pool = append(pool, (*at, jnp.int32(0)), k, v)
    return append(pool, (*at, jnp.int32(size)), rest, rest)


def plant_all(pool: KvPool, at: tuple[int, Array], k: Array, v: Array) -> KvPool:
    """The same for many slots at once, [birth, position, kv_head, dim]."""
    rest = ((0, 0), (0, pool.v.shape[2] - v.shape[1]), (0, 0), (0, 0))
    return KvPool(k=pool.k.at[at].set(turned(jnp.pad(k, rest))), v=pool.v.at[at].set(jnp.pad(v, rest)))


def append(pool: KvPool, at: tuple[int, Array, Array], k: Array, v: Array) -> KvPool:
    """Write [token, kv_head, dim] from `at` = (layer, slot, position) on; moved back where room ends."""
    layer, slot, position = at
    return KvPool(
        k=jax.lax.dynamic_update_slice(pool.k, turned(k)[None, None], (layer, slot, 0, 0, position)),
        v=jax.lax.dynamic_update_slice(pool.v, v[None, None], (layer, slot, position, 0, 0)),
    )


def append_all(pool: KvPool, at: tuple[int, Array, Array], k: Array, v: Array) -> KvPool:
    """The same for many slots at once, [row, token, kv_head, dim]; what finds no room is dropped."""
    layer, slots, positions = at
    every = positions[:, None] + jnp.arange(k.shape[1], dtype=jnp.int32)[None]
    return KvPool(
        k=pool.k.at[layer, slots[:, None], :, :, every].set(k, mode="drop"),
        v=pool.v.at[layer, slots[:, None], every].set(v, mode="drop"),
    )


def row(pool: KvPool, layer: int, slot: Int32[Array, ""]) -> tuple[Array, Array]:
    """One layer of one slot: keys [kv_head, dim, position], values [position, kv_head, dim]."""

    def of(leaf: Array) -> Array:
        return jax.lax.dynamic_slice(leaf, (layer, slot, 0, 0, 0), (1, 1, *leaf.shape[2:]))[0, 0]

    return of(pool.k), of(pool.v)


def rows(pool: KvPool, layer: int, slots: Int32[Array, " row"]) -> tuple[Array, Array]:
    """The same of many slots, [row, ...] each: a copy."""
    return pool.k[layer, slots], pool.v[layer, slots]


def start(
    texts: Texts, slots: Int32[Array, " birth"], token: Array, position: Array, draws: Draws | None
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
