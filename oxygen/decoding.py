"""Text after a prefix: newborn requests are forked from it into their slots, then decoded token by token."""

import flax.struct
import jax
import jax.numpy as jnp

from oxygen import drawing, gemma, kv_pool, pi05
from oxygen.drawing import Choice
from oxygen.kv_pool import KvPool, Texts
from oxygen.pi05 import Prefix, Weights
from oxygen.typing import Array, Float, Float32, Int32, Leaf


@flax.struct.dataclass
class Births:
    """Requests that begin in one query; rows of the spare slot are padding.

    Attributes:
        slots: Where each will live, [birth].
        parents: The row of the prefix it follows, [birth].
        suffix: Its suffix but for the last token, padded, [birth, token]; at least one column.
        suffix_length: Valid tokens of that, [birth].
        token: The suffix's last token, which decoding reads first, [birth].
        choice: How their tokens are chosen, where any request does not simply take the best.
    """

    slots: Leaf
    parents: Leaf
    suffix: Leaf
    suffix_length: Leaf
    token: Leaf
    choice: Choice | None = None


def fork(
    weights: Weights, prefix: Prefix, births: Births, pool: KvPool, texts: Texts
) -> tuple[KvPool, Texts]:
    """Give newborn requests their slots: the prefix's keys and values, then their suffix, read causally.

    Whole rows are written, so that nothing of a slot's former life remains.
    """
    birth, width = births.suffix.shape
    length = prefix.length[births.parents]
    positions = length[:, None] + jnp.arange(width, dtype=jnp.int32)[None]
    seen = prefix.valid()[births.parents]
    x = pi05.embed_text(weights, births.suffix)
    ks, vs = [], []
    for layer, all_k, all_v in zip(weights.trunk, prefix.k, prefix.v, strict=True):
        before = gemma.Keys(k=all_k[births.parents], v=all_v[births.parents], mask=seen)

        def attend(
            q: Array, k: Array, v: Array, before: gemma.Keys = before
        ) -> tuple[Array, tuple[Array, Array]]:
            own = gemma.Keys(k=k, v=v, mask=gemma.causal(birth, width))
            return gemma.attention(q, (before, own)), (k, v)

        x, (k, v) = gemma.trunk_layer(layer, x, positions, attend)
        ks.append(_row(before.k, k, length, pool.k.shape[2]))
        vs.append(_row(before.v, v, length, pool.v.shape[2]))
    pool = kv_pool.fill(pool, births.slots, jnp.stack(ks), jnp.stack(vs))
    draws = births.choice.draws() if births.choice else None
    return pool, kv_pool.start(texts, births.slots, births.token, length + births.suffix_length, draws)


def _row(before: Array, own: Array, length: Int32[Array, " birth"], positions: int) -> Array:
    """A slot's row: `before`, then `own` from position `length` on, then zeros."""
    room = positions - before.shape[1]
    padded = jnp.pad(before, ((0, 0), (0, room), (0, 0), (0, 0)))
    return jax.vmap(lambda row, new, at: jax.lax.dynamic_update_slice_in_dim(row, new, at, axis=0))(
        padded, own, length
    )


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
    positions = jnp.arange(pool.k.shape[2], dtype=jnp.int32)
    mask = (positions[None] <= position[:, None])[:, None]
    x = pi05.embed_text(weights, token[:, None])
    for index, layer in enumerate(weights.trunk):

        def attend(
            q: Array, k: Array, v: Array, index: int = index, pool: KvPool = pool
        ) -> tuple[Array, KvPool]:
            longer = kv_pool.append(pool, (index, rows, position), k[:, 0], v[:, 0])
            all_k, all_v = kv_pool.rows(longer, index, rows)
            return gemma.attention(q, (gemma.Keys(k=all_k, v=all_v, mask=mask),)), longer

        x, pool = gemma.trunk_layer(layer, x, position[:, None], attend)
    scores = logits(weights, gemma.rms_norm(x, weights.trunk_norm)[:, 0])
    return pool, kv_pool.write(texts, rows, _next(scores, texts, rows, top_k)), scores


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
