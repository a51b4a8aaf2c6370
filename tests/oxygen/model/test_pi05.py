"""Text beside actions: what forking and decoding may read, what they write, and what they leave alone."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oxygen.model import config as presets
from oxygen.model import params, pi05
from oxygen.serving import decode, kv_pool
from oxygen.serving.decode import NewRequests
from tests.oxygen.compiling import traced_for
from tests.oxygen.conftest import SMALL

SUFFIXES = ((5, 9, 301, 17), (44,), (8, 8))
SLOTS, ROOM, STEPS = 7, 16, 6


@pytest.fixture(
    scope="module",
    params=[
        ("float32", "cpu"),
        pytest.param(("bfloat16", "cpu"), marks=pytest.mark.slow),
        pytest.param(("bfloat16", "elsewhere"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def model(request):
    dtype, where = request.param
    with traced_for(where):
        yield Model(dataclasses.replace(SMALL, dtype=dtype))


class Model:
    """A small policy's functions, compiled, and a prefix of two robots."""

    def __init__(self, config):
        self.config = config
        self.weights = pi05.prepare(params.random_params(config, 1), config)
        self.fork = jax.jit(functools.partial(decode.fork, self.weights))
        self.decode = jax.jit(functools.partial(decode.decode, self.weights))
        self.embed = jax.jit(functools.partial(pi05.embed_prefix, self.weights, config))
        self.prefill = jax.jit(functools.partial(pi05.prefill, self.weights))
        self.prefix = self.read(seed=0)

    def read(self, seed):
        rng = np.random.default_rng(seed)
        images = rng.integers(0, 256, (2, 2, 28, 28, 3), dtype=np.uint8)
        prompt = rng.integers(4, 768, (2, 16)).astype(np.int32)
        length = jnp.asarray([self.config.image_tokens + 9, self.config.image_tokens + 16], jnp.int32)
        return self.prefill(self.embed(jnp.asarray(images), jnp.asarray(prompt)), length)[0]

    def empty(self, slots=SLOTS):
        pool = kv_pool.allocate(self.config, slots=slots, room=ROOM)
        return pool, kv_pool.empty_decode_state(slots=slots, limit=STEPS)

    def new_requests(self, slots, robots=(0, 1, 0)):
        suffix = np.zeros((3, 4), np.int32)
        for row, tokens in enumerate(SUFFIXES):
            suffix[row, : len(tokens) - 1] = tokens[:-1]
        return NewRequests(
            slots=jnp.asarray(slots, jnp.int32),
            robots=jnp.asarray(robots, jnp.int32),
            suffix=jnp.asarray(suffix),
            suffix_length=jnp.asarray([len(tokens) - 1 for tokens in SUFFIXES], jnp.int32),
            token=jnp.asarray([tokens[-1] for tokens in SUFFIXES], jnp.int32),
        )

    def write(self, pool, texts, rows, steps=STEPS):
        rows = jnp.asarray(rows, jnp.int32)
        for _ in range(steps):
            pool, texts, scores = self.decode(rows, pool, texts)
        return pool, texts, scores

    def texts_in(self, slots, pool_and_texts=None, prefix=None):
        before = pool_and_texts or self.empty()
        pool, texts = self.fork(prefix or self.prefix, self.new_requests(slots), *before)
        pool, texts, _ = self.write(pool, texts, [*slots, SLOTS, SLOTS])
        return np.asarray(texts.written)[np.asarray(slots)]


def test_texts_depend_on_their_prefix_and_their_suffix(model):
    texts = model.texts_in((0, 1, 2))
    assert len({text.tobytes() for text in texts}) == 3
    assert not np.array_equal(model.texts_in((0, 1, 2), prefix=model.read(seed=5)), texts)


@jax.jit
def overwritten(pool, slot, value):
    """All that a slot holds is `value`."""
    return jax.tree.map(lambda leaf: leaf.at[slot].set(jnp.full_like(leaf[0], value)), pool)


def tokens_and_scores(model, slots, batch, poison=()):
    """Of the first texts, `batch` at most, while (step, slot, value) of `poison` befall the others' slots."""
    pool, texts = model.fork(model.prefix, model.new_requests(slots), *model.empty())
    at_work, scores = slots[:batch], []
    rows = jnp.asarray([*at_work, *[SLOTS] * (batch - len(at_work))], jnp.int32)
    for step in range(STEPS):
        for _, slot, value in [each for each in poison if each[0] == step and each[1] not in at_work]:
            pool = overwritten(pool, slot, value)
        pool, texts, of_step = model.decode(rows, pool, texts)
        scores.append(np.asarray(of_step)[: len(at_work)])
    return np.asarray(texts.written)[at_work].tolist(), np.stack(scores)


@given(
    batch=st.sampled_from([1, 5]),
    slots=st.permutations(range(SLOTS)).map(lambda order: order[:3]),
    poison=st.lists(
        st.tuples(st.integers(0, STEPS - 1), st.integers(0, SLOTS), st.sampled_from([3e38, -1e30, np.nan])),
        min_size=1,
        max_size=9,
    ),
)
@settings(max_examples=25)
def test_what_befalls_idle_slots_between_two_steps_changes_no_text_and_no_score(model, batch, slots, poison):
    """A batch of five of eight slots reads all of them; one of a single text reads its own alone."""
    tokens, scores = tokens_and_scores(model, slots, batch)
    assert np.isfinite(scores).all()
    poisoned = tokens_and_scores(model, slots, batch, poison)
    assert poisoned[0] == tokens
    assert poisoned[1].tobytes() == scores.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_text_has_the_same_scores_in_every_row_of_a_large_batch(dtype):
    """At the width and batch of `small`, of which products of matrices leave rows over."""
    trunk, expert = (dataclasses.replace(of, depth=1) for of in (presets.SMALL.trunk, presets.SMALL.expert))
    config = dataclasses.replace(SMALL, trunk=trunk, expert=expert, dtype=dtype)
    rng = np.random.default_rng(0)
    pool = kv_pool.allocate(config, slots=30, room=ROOM)
    pool = jax.tree.map(lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype), pool)
    texts = dataclasses.replace(
        kv_pool.empty_decode_state(slots=30, limit=1),
        token=jnp.asarray(rng.integers(4, 768, 31), jnp.int32),
        position=jnp.asarray(rng.integers(1, 30, 31), jnp.int32),
    )
    weights = pi05.prepare(params.random_params(config, 1), config)
    step = jax.jit(functools.partial(decode.decode, weights))
    rolled = [np.roll(np.arange(30, dtype=np.int32), by) for by in range(30)]
    scores = [np.asarray(step(jnp.asarray(rows), pool, texts)[2])[np.argsort(rows)] for rows in rolled]
    assert len({of.tobytes() for of in scores}) == 1
    assert len({row.tobytes() for row in scores[0]}) == 30


def test_decoding_writes_its_own_positions_and_nothing_else(model):
    pool, texts = model.fork(model.prefix, model.new_requests((1, 2, 3)), *model.empty())
    longer, _, _ = model.write(pool, texts, [1, 3, SLOTS], steps=2)
    begin = np.asarray(texts.position)
    beside_slot_and_position = {"k": (0, 2, 3), "v": (0, 3, 4)}
    for leaf, axes in beside_slot_and_position.items():
        before, after = (np.stack([getattr(layer, leaf) for layer in of.layers]) for of in (pool, longer))
        changed = (before != after).any(axis=axes)
        for slot in range(SLOTS):
            written = {begin[slot], begin[slot] + 1} if slot in (1, 3) else set()
            assert set(np.flatnonzero(changed[slot]).tolist()) <= written


def test_forking_leaves_other_slots_and_the_prefix_alone(model):
    before = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(model.prefix)]
    pool, texts = model.empty()
    pool = jax.tree.map(lambda leaf: leaf + 3, pool)
    filled, _ = model.fork(model.prefix, model.new_requests((1, SLOTS, 4)), pool, texts)
    untouched = [0, 2, 3, 5, 6]
    for leaf in jax.tree.leaves(filled):
        assert (np.asarray(leaf)[untouched] == 3).all()
    assert [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(model.prefix)] == before


def test_neither_a_larger_pool_nor_decoding_beyond_the_room_changes_a_text(model):
    small = model.texts_in((0, 1, 2))
    pool, texts = model.empty(4 * SLOTS)
    pool, texts = model.fork(model.prefix, model.new_requests((9, 20, 27)), pool, texts)
    _, texts, _ = model.write(pool, texts, [9, 20, 27, 4 * SLOTS, 4 * SLOTS])
    assert np.array_equal(np.asarray(texts.written)[[9, 20, 27]], small)
    pool, texts = model.fork(model.prefix, model.new_requests((0, 1, 2)), *model.empty())
    _, at_limit, _ = model.write(pool, texts, [0, 1, 2, SLOTS, SLOTS])
    pool, texts, _ = model.write(pool, texts, [0, 1, 2, SLOTS, SLOTS], steps=ROOM + 5)
    assert np.array_equal(texts.written[:3], at_limit.written[:3])


in_float32 = pytest.mark.parametrize("model", [("float32", "cpu")], indirect=True, ids=" ".join)


@in_float32
def test_padding_of_the_prompt_changes_no_action_beyond_rounding(model):
    rng = np.random.default_rng(0)
    noise = jnp.asarray(rng.standard_normal((1, 10, 32), dtype=np.float32))
    images = jnp.asarray(rng.integers(0, 256, (1, 2, 28, 28, 3), dtype=np.uint8))
    length = jnp.full((1,), model.config.image_tokens + 7, jnp.int32)
    denoise, drawn = jax.jit(pi05.denoise, static_argnums=3), []
    for bucket, filler in ((16, 0), (16, 99), (32, 7)):
        prompt = np.full((1, bucket), filler, np.int32)
        prompt[0, :7] = range(100, 107)
        prefix, _ = model.prefill(model.embed(images, jnp.asarray(prompt)), length)
        drawn.append(np.asarray(denoise(model.weights, prefix, noise, 10)))
    np.testing.assert_allclose(drawn[0], drawn[1], atol=0)
    np.testing.assert_allclose(drawn[0], drawn[2], atol=1e-4)


@in_float32
def test_denoising_follows_the_velocity_from_step_to_step_with_the_librarys_attention_too(model):
    noise = jnp.asarray(np.random.default_rng(0).standard_normal((2, 10, 32), dtype=np.float32))
    velocity, actions = jax.jit(pi05.velocity), noise
    for step in range(10):
        actions = actions - velocity(model.weights, model.prefix, actions, jnp.int32(step)) / 10
    for implementation, tolerance in (("matmul", 1e-5), ("xla", 1e-4)):
        denoise = jax.jit(functools.partial(pi05.denoise, implementation=implementation), static_argnums=3)
        drawn = denoise(model.weights, model.prefix, noise, 10)
        np.testing.assert_allclose(drawn, actions, atol=tolerance)
