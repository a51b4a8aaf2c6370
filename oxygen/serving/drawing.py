"""Which token comes next: the best, or one drawn at random. Runs inside the decode program.

A request's random numbers are a function of its episode, its query, its task, its number among the requests
of its task in that query, and how many tokens it has written; not of its slot, its neighbours in the batch or
the boundaries of engine steps.
"""

import flax.struct
import jax
import jax.numpy as jnp

from oxygen.typing import Array, Float32, Int32, Leaf, UInt32

_IMPLEMENTATION = "threefry2x32"  # the same numbers on every device and in every batch
_NOISE, _TEXTS = 0, 1  # roots of two families of keys


@flax.struct.dataclass
class Choice:
    """How new requests want their tokens chosen.

    Attributes:
        origin: What a request's key is a function of, [row, 4]: the high and the low word of its
            episode's seed, its query, its language task in the low half of a word and its number among
            the requests of that task in that query in the high half (0 for the first).
        temperature: 0 takes the best token, [row].
        top_k: Draw among so many of the best; 0 draws among all, [row].
    """

    origin: Leaf
    temperature: Leaf
    top_k: Leaf

    def draws(self) -> "Draws":
        """The same with keys instead of origins."""
        return Draws(key=_request_keys(self.origin), temperature=self.temperature, top_k=self.top_k)


@flax.struct.dataclass
class Draws:
    """How the next token of every row is chosen.

    Attributes:
        key: The request's own, [row, 2]; see `Choice`.
        temperature: 0 takes the best token, [row].
        top_k: Draw among so many of the best; 0 draws among all, [row].
    """

    key: Leaf
    temperature: Leaf
    top_k: Leaf


def noise(
    seed: UInt32[Array, "batch 2"], query: UInt32[Array, " batch"], shape: tuple[int, int]
) -> Float32[Array, "batch horizon action"]:
    """The flow's noise: a function of a 64-bit episode seed (two words, the high one first) and the query."""

    def of_one(words: Array, which: Array) -> Array:
        return jax.random.normal(_folded(_NOISE, words[0], words[1], which), shape, jnp.float32)

    return jax.vmap(of_one)(seed, query)


def _request_keys(origin: UInt32[Array, "row 4"]) -> UInt32[Array, "row 2"]:
    return jax.vmap(lambda data: jax.random.key_data(_folded(_TEXTS, *data)))(origin)


def _folded(root: int, *data: Array) -> Array:
    key = jax.random.key(root, impl=_IMPLEMENTATION)
    for item in data:
        key = jax.random.fold_in(key, item)
    return key


def best(scores: Float32[Array, "row vocab"]) -> Int32[Array, " row"]:
    """The best token; of equals, the first. No softmax is needed for that."""
    return jnp.argmax(scores, axis=-1).astype(jnp.int32)


def draw(
    scores: Float32[Array, "row vocab"], draws: Draws, count: Int32[Array, " row"], most: int
) -> Int32[Array, " row"]:
    """One token per row; rows of temperature 0 take the very token that `best` takes.

    Gumbel noise on the scores makes the largest one a draw from their softmax (Gumbel-max).

    Args:
        scores: Of every token.
        draws: How each row is drawn.
        count: Which token of its text it is.
        most: The largest `top_k` of a row.
    """

    def noise_of(data: Array, step: Array) -> Array:
        key = jax.random.fold_in(jax.random.wrap_key_data(data, impl=_IMPLEMENTATION), step)
        return jax.random.gumbel(key, scores.shape[1:], jnp.float32)

    ranked = jax.lax.top_k(scores, most)[0]
    least = jnp.take_along_axis(ranked, jnp.clip(draws.top_k - 1, 0, most - 1)[:, None], axis=1)
    allowed = (draws.top_k == 0)[:, None] | (scores >= least)
    warm = draws.temperature > 0
    noisy = scores / jnp.where(warm, draws.temperature, 1.0)[:, None] + jax.vmap(noise_of)(draws.key, count)
    return jnp.where(warm, best(jnp.where(allowed, noisy, -jnp.inf)), best(scores))
