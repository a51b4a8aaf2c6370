"""Text after a prefix: new requests are forked from it into their slots, then decoded token by token."""

import functools

import flax.struct
import jax
import jax.numpy as jnp

from oxygen.model import gemma, pi05, rotary
from oxygen.model.pi05 import Prefix, Weights
from oxygen.serving import drawing, kv_pool
from oxygen.serving.kv_pool import KvLayer, KvPool, Texts
from oxygen.serving.new_requests import NewRequests
from oxygen.typing import Array, Bool, Float, Float32, Int32, Leaf

_TOGETHER = 2
"""Slots read at once on a CPU: each takes room for a layer of itself."""


def fork(
    weights: Weights, prefix: Prefix, new: NewRequests, pool: KvPool, texts: Texts
) -> tuple[KvPool, Texts]:
    """Begin requests in their slots: the prefix's keys and values, then their suffix, read causally.

    Whole rows are written, so that nothing of a slot's earlier request remains.
    """
    position = prefix.length[new.robots]
    x = pi05.embed_text(weights, new.suffix)
    by = _table(weights, pool).at(_following(position, x.shape[1]))
    kept = []
    for layer, held, k, v in zip(weights.trunk, pool.layers, prefix.k, prefix.v, strict=True):
        begin = LayerPrefix(robot=new.robots, k=k, v=v)
        at = (new.slots, position)
        x, filled = gemma.trunk_layer(layer, x, by, functools.partial(_fork_layer, held, at, begin))
        kept.append(filled)
    pool = KvPool(layers=tuple(kept))
    draws = new.choice.draws() if new.choice else None
    return pool, kv_pool.start(texts, new.slots, new.token, position + new.suffix_length, draws)


def decode(
    weights: Weights, rows: Int32[Array, " row"], pool: KvPool, texts: Texts, top_k: int = 0
) -> tuple[KvPool, Texts, Float32[Array, "row vocab"]]:
    """Write one more token of the text in every slot of `rows`.

    Args:
        weights: The model's.
        rows: Slots; the spare one fills up.
        pool: What the texts have read so far.
        texts: The texts.
        top_k: The largest of any request; 0 where all take the best token.

    Returns:
        The pool and the texts, one token longer, and the scores the tokens were picked by.
    """
    token, position = texts.token[rows], texts.position[rows]
    by = _table(weights, pool).at(position[:, None])
    x = pi05.embed_text(weights, token[:, None])
    kept = []
    for layer, held in zip(weights.trunk, pool.layers, strict=True):
        x, longer = gemma.trunk_layer(layer, x, by, functools.partial(_decode_layer, held, (rows, position)))
        kept.append(longer)
    pool = KvPool(layers=tuple(kept))
    scores = logits(weights, gemma.rms_norm(x, weights.trunk_norm)[:, 0])
    return pool, kv_pool.write(texts, rows, _next(scores, texts, rows, top_k)), scores


def _table(weights: Weights, pool: KvPool) -> rotary.Turns:
    return rotary.table(pool.layers[0].v.shape[1], weights.head_dim)


@flax.struct.dataclass
class LayerPrefix:
    """One layer's prefix, which new rows begin with.

    Attributes:
        robot: The row of the prefix that each follows, [row].
        k, v: The prefix, [robot, position, kv_head, dim].
    """

    robot: Leaf
    k: Leaf
    v: Leaf


@flax.struct.dataclass
class Tokens:
    """What every row reads in one layer.

    Attributes:
        slot: The slot of its text, [row].
        position: Where in the slot its first token goes, [row].
        q, k, v: Of its tokens, [row, token, head, dim].
    """

    slot: Leaf
    position: Leaf
    q: Leaf
    k: Leaf
    v: Leaf


def _fork_layer(
    held: KvLayer, at: tuple[Array, Array], prefix: LayerPrefix, q: Array, k: Array, v: Array
) -> tuple[Array, KvLayer]:
    """Put rows that begin with `prefix` into their slots; the tokens after it see what is before them.

    The pool is written and never read: XLA would copy it to keep a read before the writes that follow.
    """
    slot, position = at
    return jax.lax.platform_dependent(
        held,
        Tokens(slot=slot, position=position, q=q, k=k, v=v),
        prefix,
        cpu=fork_slot_by_slot,
        default=fork_all_at_once,
    )


def _decode_layer(
    held: KvLayer, at: tuple[Array, Array], q: Array, k: Array, v: Array
) -> tuple[Array, KvLayer]:
    """Write tokens into their slots; each sees what is before it."""
    slot, position = at
    tokens = Tokens(slot=slot, position=position, q=q, k=k, v=v)
    if 2 * len(slot) >= len(held.v):
        return decode_in_place(held, tokens)
    return jax.lax.platform_dependent(held, tokens, cpu=decode_slot_by_slot, default=decode_all_at_once)


def fork_slot_by_slot(held: KvLayer, tokens: Tokens, prefix: LayerPrefix) -> tuple[Array, KvLayer]:
    """On a CPU: a slot at a time."""

    def one(held: KvLayer, of_row: tuple[Tokens, Array]) -> tuple[KvLayer, Array]:
        token, robot = of_row
        before_k, before_v = prefix.k[robot], prefix.v[robot]
        held = kv_pool.begin(held, token.slot, before_k, before_v)
        held = kv_pool.append(held, (token.slot, token.position), token.k, token.v)
        seen = _before(token, prefix.k.shape[1])
        before = gemma.Keys(k=kv_pool.turned(before_k), v=before_v, mask=seen)
        own = gemma.Keys(k=kv_pool.turned(token.k), v=token.v, mask=jnp.tri(len(token.q), dtype=bool))
        return held, gemma.attention_of_one(token.q, before, own)

    held, heads = jax.lax.scan(one, held, (tokens, prefix.robot))
    return heads, held


def fork_all_at_once(held: KvLayer, tokens: Tokens, prefix: LayerPrefix) -> tuple[Array, KvLayer]:
    """Elsewhere: in one batch."""
    before_k, before_v = prefix.k[prefix.robot], prefix.v[prefix.robot]
    held = kv_pool.begin_all(held, tokens.slot, before_k, before_v)
    held = kv_pool.append_all(held, (tokens.slot, tokens.position), tokens.k, tokens.v)
    before = jax.vmap(functools.partial(_before, size=before_k.shape[1]))(tokens)
    own = jnp.broadcast_to(jnp.tri(tokens.q.shape[1], dtype=bool), (*tokens.q.shape[:2], tokens.q.shape[1]))
    keys = gemma.Keys(
        k=jnp.concatenate([before_k, tokens.k], axis=1),
        v=jnp.concatenate([before_v, tokens.v], axis=1),
        mask=jnp.concatenate([before, own], axis=2),
    )
    return gemma.attention(tokens.q, keys), held


def _before(token: Tokens, size: int) -> Bool[Array, "token position"]:
    """Which of a prefix's `size` positions a row's tokens see: those before its own."""
    seen = jnp.arange(size, dtype=jnp.int32) < token.position
    return jnp.broadcast_to(seen[None], (token.q.shape[0], size))


def decode_in_place(held: KvLayer, tokens: Tokens) -> tuple[Array, KvLayer]:
    """With half of the slots or more in use: all slots are read, and none is copied.

    The results of idle slots are thrown away. Reading these too takes less than copying those in use, which
    would be read, written, and read again.
    """
    held = kv_pool.append_all(held, (tokens.slot, tokens.position), tokens.k, tokens.v)
    number = jnp.arange(len(tokens.slot), dtype=jnp.int32)
    row = jnp.zeros((len(held.v),), jnp.int32).at[tokens.slot].set(number)
    seen = _up_to(_following(tokens.position, tokens.q.shape[1]), held.v.shape[1])
    heads = gemma.attention_turned(tokens.q[row], held.k, held.v.transpose(0, 2, 1, 3), seen[row])
    return heads[tokens.slot], held


def decode_slot_by_slot(held: KvLayer, tokens: Tokens) -> tuple[Array, KvLayer]:
    """On a CPU with few slots in use: a slot at a time, whose keys and values stay in the cache.

    All is written before anything is read, so that several can be read at once without a copy of the pool.
    """
    held = kv_pool.append_all(held, (tokens.slot, tokens.position), tokens.k, tokens.v)
    seen = _up_to(_following(tokens.position, tokens.q.shape[1]), held.v.shape[1])

    def one(_: None, of_row: tuple[Array, Array, Array]) -> tuple[None, Array]:
        slot, q, seen = of_row
        k, v = kv_pool.row(held, slot)
        return None, gemma.attention_of_one(q, gemma.Keys(k=k, v=v, mask=seen))

    _, heads = jax.lax.scan(one, None, (tokens.slot, tokens.q, seen), unroll=_TOGETHER)
    return heads, held


def decode_all_at_once(held: KvLayer, tokens: Tokens) -> tuple[Array, KvLayer]:
    """Elsewhere, with few slots in use: in one batch, which takes a copy of one layer of those slots."""
    held = kv_pool.append_all(held, (tokens.slot, tokens.position), tokens.k, tokens.v)
    k, v = kv_pool.rows(held, tokens.slot)
    seen = _up_to(_following(tokens.position, tokens.q.shape[1]), v.shape[1])
    return gemma.attention_turned(tokens.q, k, v.transpose(0, 2, 1, 3), seen), held


def _following(first: Int32[Array, " row"], count: int) -> Int32[Array, "row token"]:
    return first[:, None] + jnp.arange(count, dtype=jnp.int32)[None]


def _up_to(positions: Int32[Array, "*rows"], size: int) -> Bool[Array, "*rows position"]:
    """Which of `size` positions lie at or before each of `positions`."""
    every = jnp.arange(size, dtype=jnp.int32).reshape((1,) * positions.ndim + (size,))
    return every <= positions[..., None]


def _next(
    scores: Float32[Array, "row vocab"], texts: Texts, rows: Int32[Array, " row"], top_k: int
) -> Int32[Array, " row"]:
    if texts.draws is None:
        return drawing.best(scores)
    draws = jax.tree.map(lambda leaf: leaf[rows], texts.draws)
    return drawing.draw(scores, draws, texts.count[rows], top_k)


def logits(weights: Weights, x: Float[Array, "row width"]) -> Float32[Array, "row vocab"]:
    """Scores of every token after a normed output, by the tied embedding, in float32."""
    return jnp.einsum("bd,vd->bv", x, weights.embedding, preferred_element_type=jnp.float32)
