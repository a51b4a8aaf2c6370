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


def fill(pool: KvPool, slots: Int32[Array, " birth"], k: Array, v: Array) -> KvPool:
    """Write whole rows, [layer, birth, position, kv_head, dim]; slots beyond the pool are skipped."""
    return KvPool(k=pool.k.at[:, slots].set(k, mode="drop"), v=pool.v.at[:, slots].set(v, mode="drop"))


def append(pool: KvPool, where: tuple[int, Array, Array], k: Array, v: Array) -> KvPool:
    """Write one position per row, [row, kv_head, dim], at `where` = (layer, slots, positions)."""
    return KvPool(k=pool.k.at[where].set(k, mode="drop"), v=pool.v.at[where].set(v, mode="drop"))


def rows(pool: KvPool, layer: int, slots: Int32[Array, " row"]) -> tuple[Array, Array]:
    """One layer's keys and values of the given slots, [row, position, kv_head, dim] each."""
    return (
        pool.k.at[layer, slots].get(mode="clip"),
        pool.v.at[layer, slots].get(mode="clip"),
    )


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
