"""The compiled programs: they write in place, and draw noise from seed and query."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oxygen.model import params, pi05
from oxygen.serving import sampler
from oxygen.serving.requests import Request
from oxygen.serving.runner import ProgramSizes, Runner
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
