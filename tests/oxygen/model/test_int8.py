"""Int8 weights for decoding: half a step from the weights, other texts, the same actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.model.int8 import quantised
from oxygen.serving.engine_config import EngineConfig, check_serves
from tests.oxygen.conftest import SMALL
from tests.oxygen.model.test_adapter import SIZES, answer

MATRIX = np.random.default_rng(0).normal(size=(40, 24))


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


def test_actions_are_the_same_bits_and_texts_come_from_other_weights():
    exact, rounded = (answer(SMALL, None, int8=int8) for int8 in (False, True))
    assert exact[0].tobytes() == rounded[0].tobytes()
    assert (exact[2] >= 0).all()
    assert (rounded[2] >= 0).all()
    assert 0 < np.abs(exact[3] - rounded[3]).max() / np.abs(exact[3]).max() < 0.1


def test_an_engine_cannot_ask_for_other_weights_than_the_programs_have():
    with pytest.raises(UsageError, match="int8_decode is True"):
        check_serves(EngineConfig(int8_decode=True, slots=1, rows=1), SIZES)
