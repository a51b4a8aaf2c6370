"""Texts beside actions: what forking and decoding read, write and leave alone."""

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
from oxygen.serving import decode, kv_pool, sampler
from oxygen.serving.decode import NewRequests
from oxygen.serving.requests import Request
from oxygen.serving.runner import ProgramSizes, Runner
from tests.oxygen.compiling import DTYPES
from tests.oxygen.conftest import SMALL

SUFFIXES = ((5, 9, 301, 17), (44,), (8, 8))
SLOTS, ROOM, STEPS = 7, 16, 6


@pytest.fixture(scope="module", params=DTYPES)
def model(request):
    return Model(dataclasses.replace(SMALL, dtype=request.param))


class Model:
    """A small policy's functions, and a prefix of two robots."""

    def __init__(self, config):
        self.config = config
        self.weights = pi05.prepare(params.random_params(config, 1), config)
        self.fork, self.decode, self.prefill = (
            jax.jit(functools.partial(function, self.weights))
            for function in (decode.fork, decode.decode, pi05.prefill)
        )
        self.embed = jax.jit(functools.partial(pi05.embed_prefix, self.weights, config))
        self.prefix = self.read(seed=0)

    def read(self, seed):
        rng = np.random.default_rng(seed)
        images = rng.integers(0, 256, (2, 2, 28, 28, 3), dtype=np.uint8)
        prompt = rng.integers(4, 768, (2, 16)).astype(np.int32)
        length = jnp.asarray([self.config.image_tokens + 9, self.config.image_tokens + 16], jnp.int32)
        return self.prefill(self.embed(jnp.asarray(images), jnp.asarray(prompt)), length)[0]

    def empty(self, slots=SLOTS):
        pool = kv_pool.allocate(self.config, slots=slots, capacity=ROOM)
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

    def texts_in(self, slots, prefix=None):
        pool, texts = self.fork(prefix or self.prefix, self.new_requests(slots), *self.empty())
        pool, texts, _ = self.write(pool, texts, [*slots, SLOTS, SLOTS])
        return np.asarray(texts.written)[np.asarray(slots)]


@jax.jit
def overwritten(pool, slot, value):
    return jax.tree.map(lambda leaf: leaf.at[slot].set(jnp.full_like(leaf[0], value)), pool)


def tokens_and_scores(model, slots, batch, poison=(), size=SLOTS):
    """Of the first texts, `batch` at most, while (step, slot, value) of `poison` befall the others' slots.

    Before the texts begin, they befall all slots.
    """
    pool, texts = model.empty(size)
    for _, slot, value in poison:  # also where a request is to begin
        pool = overwritten(pool, slot, value)
    pool, texts = model.fork(model.prefix, model.new_requests(slots), pool, texts)
    at_work, scores = slots[:batch], []
    rows = jnp.asarray([*at_work, *[size] * (batch - len(at_work))], jnp.int32)
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
    pool = kv_pool.allocate(config, slots=30, capacity=ROOM)
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
        before, after = (np.stack([getattr(layer, leaf) for layer in of]) for of in (pool, longer))
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


def test_neither_a_larger_pool_nor_decoding_beyond_the_room_changes_a_text_but_another_prefix_does(model):
    small = model.texts_in((0, 1, 2))
    assert not np.array_equal(model.texts_in((0, 1, 2), prefix=model.read(seed=5)), small)
    pool, texts = model.empty(4 * SLOTS)
    pool, texts = model.fork(model.prefix, model.new_requests((9, 20, 27)), pool, texts)
    _, texts, _ = model.write(pool, texts, [9, 20, 27, 4 * SLOTS, 4 * SLOTS])
    assert np.array_equal(np.asarray(texts.written)[[9, 20, 27]], small)
    pool, texts = model.fork(model.prefix, model.new_requests((0, 1, 2)), *model.empty())
    _, at_limit, _ = model.write(pool, texts, [0, 1, 2, SLOTS, SLOTS])
    pool, texts, _ = model.write(pool, texts, [0, 1, 2, SLOTS, SLOTS], steps=ROOM + 5)
    assert np.array_equal(texts.written[:3], at_limit.written[:3])


in_float32 = pytest.mark.parametrize("model", ["float32"], indirect=True)


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
def test_denoising_follows_the_velocity_from_step_to_step(model):
    noise = jnp.asarray(np.random.default_rng(0).standard_normal((2, 10, 32), dtype=np.float32))
    velocity, actions = jax.jit(pi05.velocity), noise
    for step in range(10):
        actions = actions - velocity(model.weights, model.prefix, actions, jnp.int32(step)) / 10
    drawn = jax.jit(pi05.denoise, static_argnums=3)(model.weights, model.prefix, noise, 10)
    np.testing.assert_allclose(drawn, actions, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_texts_are_the_same_in_a_crowded_pool_among_few_at_work_and_alone(kv_heads):
    """A crowded pool is read in place; of few slots, and of one, a copy."""
    expert = dataclasses.replace(SMALL.trunk, num_kv_heads=kv_heads)
    model = Model(dataclasses.replace(SMALL, trunk=expert, expert=expert))
    texts, scores = tokens_and_scores(model, [4, 0, 2], 5)
    assert len(set(map(tuple, texts))) == 3
    for batch in (3, 1):
        found, of_few = tokens_and_scores(model, [4, 0, 2], batch, size=4 * SLOTS)
        assert found == texts[:batch]
        np.testing.assert_allclose(of_few, scores[:, :batch], atol=1e-4 * np.abs(scores).max())


@pytest.mark.parametrize(("slots", "copied"), [(5, False), (20, True)])
def test_keys_and_values_of_a_crowded_pool_are_not_copied(slots, copied):
    """What XLA is given: arrays of the rows' size are copies."""
    weights = pi05.prepare(params.random_params(SMALL, 1), SMALL)
    pool = kv_pool.allocate(SMALL, slots=slots, capacity=ROOM)
    texts, rows = kv_pool.empty_decode_state(slots=slots, limit=STEPS), jnp.asarray((4, 0, 2), jnp.int32)
    program = jax.jit(functools.partial(decode.decode, weights)).lower(rows, pool, texts).as_text()
    for leaf in (pool[0].k, pool[0].v):
        shape = "x".join(map(str, (len(rows), *leaf.shape[1:])))
        assert (f"tensor<{shape}xf32>" in program) == copied
        assert f"tensor<{slots + 1}x" in program


def test_steps_that_decode_the_same_rows_send_nothing_to_the_device(policy):
    served = policy.runner
    state = served.decode((2, 0), *served.empty(), batch=8)
    with jax.transfer_guard_host_to_device("disallow_explicit"):
        for _ in range(3):
            state = served.decode([2, 0], *state, batch=8)
        with pytest.raises(RuntimeError, match="host-to-device"):
            served.decode([0, 2], *state, batch=8)


def test_noise_is_normal_and_a_function_of_seed_and_query():
    seeds = jnp.array([[0, 1], [1, 0], [0, 1], [0, 2]], jnp.uint32)
    queries = jnp.array([0, 0, 1, 0], jnp.uint32)
    sampled = np.asarray(sampler.noise(seeds, queries, (50, 32)))
    assert len({rows.tobytes() for rows in sampled}) == 4
    assert abs(sampled.mean()) < 0.05
    assert abs(sampled.std() - 1) < 0.05
    one = np.asarray(sampler.noise(seeds[2:3], queries[2:3], (50, 32)))
    assert one.tobytes() == sampled[2:3].tobytes(), "company changes nothing"


@pytest.mark.slow
def test_actions_that_start_from_less_noise_owe_less_to_chance():
    spread, sizes = [], ProgramSizes(slots=6, rows=(4,), forks=(2,), suffix=3, limit=8)
    for scale in (1.0, 0.5, 0.0):
        config = dataclasses.replace(SMALL, noise_scale=scale)
        served = Runner(config, pi05.prepare(params.random_params(config, 0), config), sizes)
        prefix = served.prefill(served.blank(24))
        sampled = [np.asarray(served.denoise(prefix, [seed], [0])) for seed in range(4)]
        spread.append(float(np.std(sampled, axis=0).mean()))
    assert spread[0] > spread[1] > spread[2] == 0.0


def test_a_request_begins_alike_in_a_small_fork_and_in_a_large_one():
    weights = pi05.prepare(params.random_params(SMALL, 0), SMALL)
    served = Runner(SMALL, weights, ProgramSizes(slots=3, rows=(1,), forks=(1, 3), suffix=4, limit=4))
    prefix = served.prefill(served.blank(SMALL.prompt_buckets[0]))
    request = Request(slot=1, robot=0, suffix=(5, 6, 7, 8), query=0, task=0)
    written = []
    for batch in (1, 3):
        pool, texts = served.empty()
        new = served.new_requests([request], batch=batch)
        assert len(new.slots) == batch
        pool, texts = served.fork(prefix, new, pool, texts)
        written.append([np.asarray(leaf[1]) for layer in pool for leaf in (layer.k, layer.v)])
        assert int(texts.position[1]) == int(prefix.length[0]) + 3
    for small, large in zip(*written, strict=True):
        np.testing.assert_allclose(small, large, atol=1e-5)
        assert np.abs(small).max() > 0
