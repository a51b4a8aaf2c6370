"""What training begins with: the parameters a model of that size has, at a size that signals survive."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oxygen.model import params, pi05
from oxygen.model.config import SMALL, TINY
from oxygen.model.params import initial_params
from oxygen.training.forward import prefill_observations, velocities
from tests.oxygen.training.conftest import MODEL, by_path


def test_they_are_the_parameters_of_the_model():
    own_kv = dataclasses.replace(MODEL.trunk, num_kv_heads=MODEL.trunk.num_heads)
    for model in (MODEL, SMALL, TINY, dataclasses.replace(MODEL, trunk=own_kv, expert=own_kv)):
        found = by_path(initial_params(model, 0))
        assert {path: leaf.shape for path, leaf in found.items()} == params.shapes(model)


def test_the_seed_decides():
    one, same, other = (initial_params(MODEL, seed) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, one, same)
    assert not np.array_equal(one["action_in_proj"]["kernel"], other["action_in_proj"]["kernel"])


@pytest.mark.slow
def test_what_passes_through_keeps_its_size_and_hears_the_observation():
    parameters = jax.tree.map(jnp.asarray, initial_params(MODEL, 0))
    weights = pi05.weights_at(parameters, MODEL, jnp.asarray([0.2, 0.9]))
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.integers(0, 256, (2, 2, 28, 28, 3), dtype=np.uint8))
    prompt = jnp.asarray(rng.integers(4, 700, (2, 8)), jnp.int32)
    prefix = prefill_observations(weights, MODEL, images, prompt, jnp.asarray([8, 8], jnp.int32))
    for value in prefix.v:
        assert 0.2 < float(jnp.std(value)) < 5
    same = jnp.asarray(np.broadcast_to(rng.standard_normal((1, 1, 10, 8)), (2, 1, 10, 8)), jnp.float32)
    flowing = np.asarray(velocities(weights, prefix, same))
    assert np.abs(flowing[0] - flowing[1]).max() > 1e-3
