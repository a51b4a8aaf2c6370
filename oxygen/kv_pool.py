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
from oxygen.typing import Array, Int32, Leaf

NOTHING = -1
"""Stands where no token has been written."""


@flax.struct.dataclass
class KvPool:
    """Keys and values of every slot, [layer, slot, position, kv_head, dim] each."""

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
    shape = (trunk.depth, slots + 1, positions, trunk.num_kv_heads, trunk.head_dim)
    return KvPool(k=jnp.zeros(shape, config.dtype), v=jnp.zeros(shape, config.dtype))


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


def plant(pool: KvPool, at: tuple[int, Array], k: Array, v: Array) -> KvPool:
    """Begin the row `at` = (layer, slot) with [position, kv_head, dim], and clear what comes after it."""

    def of(leaf: Array, new: Array) -> Array:
        rest = jnp.zeros((leaf.shape[2] - new.shape[0], *new.shape[1:]), leaf.dtype)
        leaf = jax.lax.dynamic_update_slice(leaf, new[None, None], (*at, 0, 0, 0))
        return jax.lax.dynamic_update_slice(leaf, rest[None, None], (*at, new.shape[0], 0, 0))

    return KvPool(k=of(pool.k, k), v=of(pool.v, v))


def plant_all(pool: KvPool, at: tuple[int, Array], k: Array, v: Array) -> KvPool:
    """The same for many slots at once, [birth, position, kv_head, dim]."""

    def of(leaf: Array, new: Array) -> Array:
        rest = ((0, 0), (0, leaf.shape[2] - new.shape[1]), (0, 0), (0, 0))
        return leaf.at[at].set(jnp.pad(new, rest))

    return KvPool(k=of(pool.k, k), v=of(pool.v, v))


def append(pool: KvPool, at: tuple[int, Array, Array], k: Array, v: Array) -> KvPool:
    """Write [token, kv_head, dim] from `at` = (layer, slot, position) on; moved back where room ends."""
    return KvPool(
        k=jax.lax.dynamic_update_slice(pool.k, k[None, None], (*at, 0, 0)),
        v=jax.lax.dynamic_update_slice(pool.v, v[None, None], (*at, 0, 0)),
    )


def append_all(pool: KvPool, at: tuple[int, Array, Array], k: Array, v: Array) -> KvPool:
    """The same for many slots at once, [row, token, kv_head, dim]; what finds no room is dropped."""
    layer, slots, positions = at
    every = positions[:, None] + jnp.arange(k.shape[1], dtype=jnp.int32)[None]
    where = (layer, slots[:, None], every)
    return KvPool(k=pool.k.at[where].set(k, mode="drop"), v=pool.v.at[where].set(v, mode="drop"))


def row(pool: KvPool, layer: int, slot: Int32[Array, ""]) -> tuple[Array, Array]:
    """One layer's keys and values of one slot, [position, kv_head, dim] each."""
    at, size = (layer, slot, 0, 0, 0), (1, 1, *pool.k.shape[2:])
    return jax.lax.dynamic_slice(pool.k, at, size)[0, 0], jax.lax.dynamic_slice(pool.v, at, size)[0, 0]


def rows(pool: KvPool, layer: int, slots: Int32[Array, " row"]) -> tuple[Array, Array]:
    """One layer's keys and values of the given slots, [row, position, kv_head, dim] each: a copy."""
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
