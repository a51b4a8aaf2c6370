"""Int8 weights for decoding: half a step from the weights, other texts, the same actions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.model import params, pi05
from oxygen.model.int8 import quantised
from oxygen.serving.engine_config import EngineConfig, check_serves
from oxygen.serving.requests import Request
from oxygen.serving.runner import ProgramSizes, Runner
from tests.oxygen.conftest import SMALL

MATRIX = np.random.default_rng(0).normal(size=(40, 24))
SIZES = ProgramSizes(slots=1, rows=(1,), forks=(1,), suffix=3, limit=8)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_weight_is_at_most_half_a_step_off(dtype):
    matrix = jnp.asarray(MATRIX, dtype).at[:, 3].set(0)
    found = quantised(matrix)
    assert (found.values.dtype, found.shape) == (jnp.int8, matrix.shape)
    assert jnp.abs(found.values).max() == 127
    off = np.abs(dequantised(found) - np.asarray(matrix, np.float32))
    assert (off <= 0.5001 * np.asarray(found.scale)).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_takes_the_place_of_a_matrix_in_a_product(dtype):
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 5, 40)), dtype)
    found = quantised(jnp.asarray(MATRIX, dtype))
    product = jax.jit(lambda x, m: x @ m)(x, found)
    exact = np.asarray(x, np.float32) @ dequantised(found)
    assert (product.shape, product.dtype) == ((2, 5, 24), x.dtype)
    np.testing.assert_allclose(np.asarray(product, np.float32), exact, rtol=2e-2, atol=2e-2)


def dequantised(matrix):
    return np.asarray(matrix.values, np.float32) * np.asarray(matrix.scale)


def served(*, int8_decode):
    weights = pi05.prepare(params.random_params(SMALL, 0), SMALL)
    return Runner(SMALL, weights, dataclasses.replace(SIZES, int8_decode=int8_decode))


def answer(runner):
    """Actions of an observation, its text, and the keys and values of the last layer's text."""
    inputs = runner.blank(SMALL.prompt_buckets[0])
    prefix = runner.prefill(inputs)
    actions = runner.denoise(prefix, [3], [0])
    new = runner.new_requests([Request(slot=0, robot=0, suffix=(5, 9, 301), query=0, task=0)])
    state = runner.fork(prefix, new, *runner.empty())
    for _ in range(SIZES.limit):
        state = runner.decode([0], *state, batch=1)
    return np.asarray(actions), np.asarray(state[1].written)[0], np.asarray(state[0].layers[-1].k)[0]


def test_actions_are_the_same_bits_and_texts_come_from_other_weights():
    exact, rounded = served(int8_decode=False), served(int8_decode=True)
    (actions, text, keys), (actions_too, text_too, keys_too) = answer(exact), answer(rounded)
    assert actions.tobytes() == actions_too.tobytes()
    assert (text >= 0).all()
    assert (text_too >= 0).all()
    off = np.abs(keys - keys_too).max() / np.abs(keys).max()
    assert 0 < off < 0.1


def test_an_engine_cannot_ask_for_other_weights_than_the_programs_have():
    with pytest.raises(UsageError, match="int8_decode is True"):
        check_serves(EngineConfig(int8_decode=True, slots=1, rows=1), SIZES)
