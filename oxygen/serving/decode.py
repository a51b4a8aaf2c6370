"""Text decoding: forks the prefix KV cache into the slots of new requests, then decodes token by token."""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from oxygen.model import gemma, pi05
from oxygen.model.pi05 import Prefix, Weights
from oxygen.serving import kv_pool, sampler
from oxygen.serving.kv_pool import DecodeState, KvLayer, KvPool
from oxygen.serving.sampler import SamplingState
from oxygen.typing import Array, Float, Float32, Int32, Leaf


@flax.struct.dataclass
class NewRequests:
    """Requests to fork in one program; rows with the spare slot are padding."""

    slots: Leaf  # KV slot, [row]
    robots: Leaf  # prefix row, [row]
    suffix: Leaf  # the suffix without its last token, padded, [row, token]; at least one column
    suffix_length: Leaf  # valid tokens of that, [row]
    token: Leaf  # the suffix's last token, the first input of decoding, [row]
    # Sampling parameters, with the material of the keys, [row, 4], in place of these (see
    # `sampler.request_keys`); None if every request is greedy.
    draws: SamplingState | None = None


def fork(
    weights: Weights,
    prefix: Prefix,
    new: NewRequests,
    pool: KvPool,
    texts: DecodeState,
    top_k: int = 0,
) -> tuple[KvPool, DecodeState]:
    """Start requests in their slots: copy the prefix KV cache and prefill their suffix causally.

    Slots are overwritten completely, so nothing of an earlier request remains. If generated tokens see other
    slots than the suffix does, the whole suffix is prefilled here and the first token is chosen.
    """
    position = prefix.length[new.robots]
    shown, suffix = prefix, new.suffix
    if weights.stale_slots is not None:
        shown = weights.stale_slots.in_place_of_prompt(weights, prefix)
        every = jnp.arange(len(suffix), dtype=jnp.int32)
        suffix = jnp.pad(suffix, ((0, 0), (0, 1))).at[every, new.suffix_length].set(new.token)
    x = pi05.embed_text(weights, suffix)
    rows, tokens = x.shape[:2]
    angles = _table(weights, pool).at(position[:, None] + jnp.arange(tokens, dtype=jnp.int32)[None])
    before = jnp.broadcast_to(prefix.valid()[new.robots], (rows, tokens, prefix.k[0].shape[1]))
    causal = jnp.broadcast_to(jnp.tri(tokens, dtype=bool), (rows, tokens, tokens))
    mask = jnp.concatenate([before, causal], axis=2)
    leaves, kept = (prefix.k, prefix.v, shown.k, shown.v), []
    for layer, held, *kv in zip(weights.trunk, pool, *leaves, strict=True):
        # The pool is only written, not read: a read before the next write would make XLA copy it.
        def attend(
            q: Array, k: Array, v: Array, held: KvLayer = held, kv: list[Array] = kv
        ) -> tuple[Array, KvLayer]:
            prefix_k, prefix_v, shown_k, shown_v = (leaf[new.robots] for leaf in kv)
            held = kv_pool.begin(held, new.slots, shown_k, shown_v)
            held = kv_pool.append(held, new.slots, position, k, v)
            k, v = jnp.concatenate([prefix_k, k], axis=1), jnp.concatenate([prefix_v, v], axis=1)
            return gemma.attention(q, k, v, mask), held

        x, filled = gemma.trunk_layer(layer, x, angles, attend)
        kept.append(filled)
    pool = tuple(kept)
    first, draws = None, new.draws
    if draws is not None:
        draws = dataclasses.replace(draws, key=sampler.request_keys(draws.key))
    if weights.stale_slots is not None:
        last = jnp.take_along_axis(x, new.suffix_length[:, None, None], axis=1)
        scores = logits(weights, gemma.rms_norm(last, weights.trunk_norm)[:, 0])
        first = _chosen(scores, draws, jnp.zeros_like(new.token), top_k)
    return pool, kv_pool.start(texts, new.slots, new.token, position + new.suffix_length, draws, first)


def decode(
    weights: Weights,
    rows: Int32[Array, " row"],
    pool: KvPool,
    texts: DecodeState,
    top_k: int = 0,
) -> tuple[KvPool, DecodeState, Float32[Array, "row vocab"]]:
    """Decode one token in every slot of `rows`, which are padded with the spare slot.

    `top_k` is the largest of any request; 0 if all requests are greedy.

    Returns:
        The updated pool and decode state, and the logits (without meaning in a step whose token the fork
        chose).
    """
    token, position = texts.token[rows], texts.position[rows]
    angles = _table(weights, pool).at(position[:, None])
    if texts.first is not None:  # this step writes what the fork chose, and no keys and values
        position = jnp.where(texts.count[rows] > 0, position, pool[0].v.shape[1])
    x = pi05.embed_text(weights, token[:, None])
    kept = []
    for layer, held in zip(weights.trunk, pool, strict=True):

        def attend(q: Array, k: Array, v: Array, held: KvLayer = held) -> tuple[Array, KvLayer]:
            held = kv_pool.append(held, rows, position, k, v)
            return attend_by_occupancy(q, held, rows, position), held

        x, longer = gemma.trunk_layer(layer, x, angles, attend)
        kept.append(longer)
    pool = tuple(kept)
    step_logits = logits(weights, gemma.rms_norm(x, weights.trunk_norm)[:, 0])
    draws = jax.tree.map(lambda leaf: leaf[rows], texts.draws)
    chosen = _chosen(step_logits, draws, texts.count[rows], top_k)
    if texts.first is not None:
        chosen = jnp.where(texts.count[rows] > 0, chosen, texts.first[rows])
    return pool, kv_pool.write(texts, rows, chosen), step_logits


def _table(weights: Weights, pool: KvPool) -> gemma.RotaryTables:
    return gemma.rotary_table(pool[0].v.shape[1], weights.head_dim)


def attend_by_occupancy(q: Array, held: KvLayer, slots: Array, positions: Array) -> Array:
    """Attention of one token in each of some slots to all positions there up to its own: the heads' outputs.

    Takes queries [row, 1, head, dim], the layer, and every row's slot and position. With at least half of the
    slots in use, reads all in place and discards idle ones: a copy takes a read, a write and another read.
    """
    every = jnp.arange(held.v.shape[1], dtype=jnp.int32)
    seen = every[None, None] <= positions[:, None, None]
    if 2 * len(slots) >= len(held.v):
        row = jnp.zeros((len(held.v),), jnp.int32).at[slots].set(jnp.arange(len(slots), dtype=jnp.int32))
        return gemma.attention_transposed(q[row], held.k, held.v.transpose(0, 2, 1, 3), seen[row])[slots]
    k, v = held.k[slots], held.v[slots]
    if len(slots) == 1:
        return gemma.attention_single_row(q[0], k[0], v[0], seen[0])[None]
    return gemma.attention_transposed(q, k, v.transpose(0, 2, 1, 3), seen)


def _chosen(
    step_logits: Float32[Array, "row vocab"],
    draws: SamplingState | None,
    count: Int32[Array, " row"],
    top_k: int,
) -> Int32[Array, " row"]:
    if draws is None:
        return sampler.best(step_logits)
    return sampler.draw(step_logits, draws, count, top_k)


def logits(weights: Weights, x: Float[Array, "row width"]) -> Float32[Array, "row vocab"]:
    """Logits of normalised outputs, in float32, by the tied embedding or its int8 values."""
    if weights.text_head is not None:
        product: Array = weights.text_head.product(x)
    else:
        product = jnp.einsum("bd,vd->bv", x, weights.embedding, preferred_element_type=jnp.float32)
    kept = jnp.finfo(weights.logits_dtype)
    return product if kept.bits == 32 else jax.lax.reduce_precision(product, kept.nexp, kept.nmant)
