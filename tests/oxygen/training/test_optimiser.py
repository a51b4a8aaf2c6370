"""The optimiser: which parameters are turned as matrices, which decay, and how far a step goes."""

import functools

import jax
import numpy as np
import pytest

from oxygen.model.params import initial_params
from oxygen.training.optimiser import init_state, learning_rate_schedule, optimiser
from tests.oxygen.compiling import COMPILED_SOON
from tests.oxygen.training.conftest import MODEL, RECIPE, by_path, changed

FLAT_OUT = changed(RECIPE, warm_up=0, weight_decay=0.0, clip=1e6)


@pytest.fixture(scope="module")
def parameters():
    return initial_params(MODEL, 0)


def step(recipe, gradient, parameters):
    """What the first step adds to every parameter, for a gradient."""
    update = jax.jit(optimiser(recipe).update, compiler_options=COMPILED_SOON)
    with jax.numpy_dtype_promotion("standard"):
        change, _ = update(gradient, init_state(parameters, recipe).optimiser, parameters)
    return by_path(change)


@pytest.fixture(scope="module")
def first_change(parameters):
    """What the first step of an optimiser adds, for a gradient that is random but of full rank."""
    rng = np.random.default_rng(0)
    gradient = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32), parameters)

    @functools.cache
    def of(name):
        return step(changed(FLAT_OUT, optimiser=name), gradient, parameters)

    return of


def spread(matrix):
    """Ratio of the largest singular value to the median one."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return values[0] / np.median(values)


@pytest.mark.parametrize(
    ("path", "as_matrix"),
    [
        ("PaliGemma/llm/layers/attn/q_einsum/w", lambda w: w[0].transpose(1, 0, 2).reshape(32, -1)),
        ("PaliGemma/llm/layers/attn/attn_vec_einsum_1/w", lambda w: w[0].reshape(-1, 32)),
        ("PaliGemma/llm/layers/mlp/gating_einsum", lambda w: w[0, 1]),
        (
            "PaliGemma/img/Transformer/encoderblock/MultiHeadDotProductAttention_0/query/kernel",
            lambda w: w[0].reshape(16, -1),
        ),
    ],
)
def test_muon_moves_a_matrix_as_far_in_every_direction(first_change, path, as_matrix):
    turned = as_matrix(first_change("muon")[path])
    plain = as_matrix(first_change("adamw")[path])
    assert spread(turned) < 1.5 < spread(plain)


def test_both_optimisers_take_steps_of_one_size(first_change):
    rate = float(learning_rate_schedule(FLAT_OUT)(0))
    for name in ("muon", "adamw"):
        for path, delta in first_change(name).items():
            assert 0.1 * rate < np.sqrt(np.mean(np.square(delta))) < 1.6 * rate, (name, path)  # Nesterov


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_embeddings_and_biases_never_decay(parameters, name):
    still = jax.tree.map(np.zeros_like, parameters)
    recipe = changed(FLAT_OUT, optimiser=name, weight_decay=0.1)
    moved = {path for path, delta in step(recipe, still, parameters).items() if delta.any()}
    assert {path for path in moved if path.endswith(("bias", "scale", "embedding"))} == set()
    assert "PaliGemma/llm/layers/mlp/linear" in moved
