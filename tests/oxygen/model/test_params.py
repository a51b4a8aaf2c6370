"""The parameter tree is openpi's, to the letter; random parameters are a function of seed and path."""

import dataclasses

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen.model import params
from oxygen.model.config import TINY
from oxygen.model.siglip import Stem
from tests.oxygen.compiling import COMPILED_SOON
from tests.oxygen.conftest import SMALL


def test_what_a_staged_embedding_sees_of_a_square_depends_on_that_square_alone():
    config = dataclasses.replace(TINY.siglip, patch=8, stem=(8,))
    stem = Stem(config)
    dark = jnp.zeros((1, 16, 16, 3), jnp.float32)
    lit = dark.at[:, 8:, :8].set(1.0)
    variables = jax.jit(stem.init, compiler_options=COMPILED_SOON)(jax.random.key(0), dark)
    embed = jax.jit(stem.apply, compiler_options=COMPILED_SOON)
    changed = np.asarray(embed(variables, lit) != embed(variables, dark)).any(axis=(0, 3))
    assert changed.nonzero()[0].min() == 2
    assert changed.nonzero()[1].max() == 1


def test_a_patch_that_cannot_be_halved_so_often_is_refused():
    with pytest.raises(UsageError, match="multiple of 4"):
        dataclasses.replace(TINY.siglip, patch=14, stem=(8, 24))


def flat(tree):
    return flax.traverse_util.flatten_dict(tree, sep="/")


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=5)
def test_an_array_depends_on_the_seed_and_on_its_path_alone(seed):
    sampled = flat(params.random_params(SMALL, seed))
    assert {path: array.shape for path, array in sampled.items()} == params.shapes(SMALL)
    wider = dataclasses.replace(SMALL, vocab_size=SMALL.vocab_size + 1)
    again = flat(params.random_params(wider, seed))
    other = flat(params.random_params(SMALL, seed + 1))
    for path, array in sampled.items():
        assert path.endswith("input_embedding") or np.array_equal(array, again[path])
        assert not np.array_equal(array, other[path])


def test_drawing_in_pieces_changes_no_number(monkeypatch):
    whole = flat(params.random_params(SMALL, 3))
    monkeypatch.setattr(params, "_DRAWN_AT_ONCE", 101)
    for path, piecewise in flat(params.random_params(SMALL, 3)).items():
        np.testing.assert_array_equal(piecewise, whole[path])
