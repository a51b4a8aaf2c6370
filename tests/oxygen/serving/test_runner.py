"""The compiled programs: they write in place, draw noise from seed and query, and agree on all devices."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oxygen.model import params, pi05
from oxygen.serving import decode, kv_pool, sampler
from oxygen.serving.decode import NewRequests
from oxygen.serving.requests import Request
from oxygen.serving.runner import ProgramSizes, Runner
from tests.oxygen.compiling import traced_for
from tests.oxygen.conftest import SMALL


def small_runner(config=SMALL):
    weights = pi05.prepare(params.random_params(config, 0), config)
    return Runner(config, weights, ProgramSizes(slots=6, rows=(4,), forks=(2,), suffix=3, limit=8))


def test_the_pool_that_was_given_is_used_up(policy):
    served = policy.runner
    pool, texts = served.empty()
    prefix = served.prefill(served.blank(24))
    longer, _ = served.fork(prefix, served.new_requests(()), pool, texts)
    jax.block_until_ready(longer)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(pool))
    assert not texts.written.is_deleted()


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
    spread = []
    for scale in (1.0, 0.5, 0.0):
        served = small_runner(dataclasses.replace(SMALL, noise_scale=scale))
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
        written.append([np.asarray(leaf[1]) for layer in pool.layers for leaf in (layer.k, layer.v)])
        assert int(texts.position[1]) == int(prefix.length[0]) + 3
    for small, large in zip(*written, strict=True):
        np.testing.assert_allclose(small, large, atol=1e-5)
        assert np.abs(small).max() > 0


SUFFIXES = ((5, 9, 301, 17), (44,), (8, 8))
SLOTS, ROWS, STEPS = 5, (4, 0, 2), 6


ONE_KV_HEAD = pytest.param(1, marks=pytest.mark.slow, id="one KV head")


@pytest.fixture(scope="module", params=[ONE_KV_HEAD, pytest.param(2, id="two KV heads")])
def model(request):
    expert = dataclasses.replace(SMALL.trunk, num_kv_heads=request.param)
    config = dataclasses.replace(SMALL, trunk=expert, expert=expert)
    return config, pi05.prepare(params.random_params(config, 1), config)


def prefix_of(config, weights):
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.integers(0, 256, (2, 2, 28, 28, 3), dtype=np.uint8))
    prompt = jnp.asarray(rng.integers(4, 768, (2, 16)), jnp.int32)
    length = jnp.asarray([config.image_tokens + 9, config.image_tokens + 16], jnp.int32)

    def read(images, prompt, length):
        return pi05.prefill_kv(weights, pi05.embed_prefix(weights, config, images, prompt), length)

    return jax.jit(read)(images, prompt, length)


def new_requests():
    suffix = np.zeros((3, 4), np.int32)
    for row, tokens in enumerate(SUFFIXES):
        suffix[row, : len(tokens) - 1] = tokens[:-1]
    return NewRequests(
        slots=jnp.asarray(ROWS, jnp.int32),
        robots=jnp.asarray([0, 1, 0], jnp.int32),
        suffix=jnp.asarray(suffix),
        suffix_length=jnp.asarray([len(tokens) - 1 for tokens in SUFFIXES], jnp.int32),
        token=jnp.asarray([tokens[-1] for tokens in SUFFIXES], jnp.int32),
    )


def texts_and_scores(model, slots):
    """The tokens of three requests, and the scores they were picked by; programs are traced anew."""
    config, weights = model
    pool = kv_pool.allocate(config, slots=slots, room=16)
    fork, step = (jax.jit(functools.partial(of, weights)) for of in (decode.fork, decode.decode))
    texts = kv_pool.empty_decode_state(slots=slots, limit=STEPS)
    pool, texts = fork(prefix_of(config, weights), new_requests(), pool, texts)
    scores = []
    for _ in range(STEPS):
        pool, texts, of_step = step(jnp.asarray(ROWS, jnp.int32), pool, texts)
        scores.append(np.asarray(of_step))
    return np.asarray(texts.written)[list(ROWS)], np.stack(scores)


FEW_AT_WORK = pytest.param(4 * SLOTS, marks=pytest.mark.slow, id="few at work")


@pytest.mark.parametrize("slots", [pytest.param(SLOTS, id="crowded"), FEW_AT_WORK])
def test_a_batch_gives_the_texts_that_a_cpu_gives_slot_by_slot(model, slots):
    on_cpu = texts_and_scores(model, slots)
    with traced_for("elsewhere"):
        texts, scores = texts_and_scores(model, slots)
    assert np.array_equal(texts, on_cpu[0])
    np.testing.assert_allclose(scores, on_cpu[1], atol=1e-4 * np.abs(on_cpu[1]).max())
    assert len({text.tobytes() for text in texts}) == 3


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize(("slots", "copied"), [(SLOTS, []), (4 * SLOTS, ["cuda"])])
def test_keys_and_values_of_a_crowded_pool_are_copied_on_no_device(slots, copied, platform):
    """What XLA is given, for a device that need not be there: arrays of the rows' size are copies."""
    weights = pi05.prepare(params.random_params(SMALL, 1), SMALL)
    pool = kv_pool.allocate(SMALL, slots=slots, room=16)
    texts, rows = kv_pool.empty_decode_state(slots=slots, limit=STEPS), jnp.asarray(ROWS, jnp.int32)
    traced = jax.jit(functools.partial(decode.decode, weights)).trace(rows, pool, texts)
    program = traced.lower(lowering_platforms=(platform,)).as_text()
    for leaf in (pool.layers[0].k, pool.layers[0].v):
        shape = "x".join(map(str, (len(ROWS), *leaf.shape[1:])))
        assert (f"tensor<{shape}xf32>" in program) == (platform in copied)
        assert f"tensor<{slots + 1}x" in program
