"""Random numbers of the programs: the flow's noise, and greedy or sampled next tokens.

A request's random numbers are a function of its episode seed, query, task, ordinal among the task's requests
in that query, and number of tokens so far; not of its slot, the batch or the engine step.
"""

import flax.struct
import jax
import jax.numpy as jnp

from oxygen.typing import Array, Float32, Int32, Leaf, UInt32

_IMPLEMENTATION = "threefry2x32"  # the same numbers on every device and in every batch
_NOISE, _TEXTS = 0, 1  # roots of two families of keys


@flax.struct.dataclass
class SamplingState:
    """Sampling keys and parameters of every row."""

    key: Leaf  # the request's key, [row, 2]; see `request_keys`
    temperature: Leaf  # 0 is greedy, [row]
    top_k: Leaf  # sample among this many of the most likely tokens; 0 samples among all, [row]


def request_keys(origin: UInt32[Array, "row 4"]) -> UInt32[Array, "row 2"]:
    """The keys of new requests.

    Args:
        origin: High and low word of the episode's seed, the query, and a word with the language task in the
            low half and the ordinal among that task's requests in the query in the high half.
    """
    return jax.vmap(lambda words: jax.random.key_data(_folded(_TEXTS, *words)))(origin)


def noise(
    seed: UInt32[Array, "batch 2"], query: UInt32[Array, " batch"], shape: tuple[int, int]
) -> Float32[Array, "batch horizon action"]:
    """The flow's noise: a function of a 64-bit episode seed (two words, the high one first) and the query."""

    def of_one(words: Array, which: Array) -> Array:
        return jax.random.normal(_folded(_NOISE, words[0], words[1], which), shape, jnp.float32)

    return jax.vmap(of_one)(seed, query)


def _folded(root: int, *data: Array) -> Array:
    key = jax.random.key(root, impl=_IMPLEMENTATION)
    for item in data:
        key = jax.random.fold_in(key, item)
    return key


def best(logits: Float32[Array, "row vocab"]) -> Int32[Array, " row"]:
    """The most likely token; of equals, the first."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)


def draw(
    logits: Float32[Array, "row vocab"], draws: SamplingState, count: Int32[Array, " row"], most: int
) -> Int32[Array, " row"]:
    """Sample one token per row by the Gumbel-max trick; rows of temperature 0 equal `best`.

    `count` tokens written so far select the noise; `most` is the largest `top_k` of a row.
    """

    def noise_of(data: Array, step: Array) -> Array:
        key = jax.random.fold_in(jax.random.wrap_key_data(data, impl=_IMPLEMENTATION), step)
        return jax.random.gumbel(key, logits.shape[1:], jnp.float32)

    ranked = jax.lax.top_k(logits, most)[0]
    least = jnp.take_along_axis(ranked, jnp.clip(draws.top_k - 1, 0, most - 1)[:, None], axis=1)
    allowed = (draws.top_k == 0)[:, None] | (logits >= least)
    warm = draws.temperature > 0
    noisy = logits / jnp.where(warm, draws.temperature, 1.0)[:, None] + jax.vmap(noise_of)(draws.key, count)
    return jnp.where(warm, best(jnp.where(allowed, noisy, -jnp.inf)), best(logits))
