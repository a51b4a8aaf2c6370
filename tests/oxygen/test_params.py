"""The parameter tree is openpi's, to the letter; random parameters are a function of seed and path."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oxygen import params
from oxygen.config import PI05_LIBERO, TINY
from tests.oxygen.conftest import SMALL


@pytest.mark.golden
def test_the_published_policys_tree_is_met_to_the_last_key(golden):
    theirs = json.loads((golden / "pi05_libero_param_tree.json").read_text())
    ours = params.shapes(PI05_LIBERO)
    assert ours == {path: tuple(leaf["shape"]) for path, leaf in theirs.items()}


def test_the_tiny_policy_has_a_few_million_parameters():
    assert 2e6 < sum(np.prod(shape) for shape in params.shapes(TINY).values()) < 6e6


def flat(tree):
    import flax.traverse_util

    return flax.traverse_util.flatten_dict(tree, sep="/")


def test_random_parameters_fill_the_tree():
    drawn = flat(params.random_params(SMALL, 3))
    assert {path: array.shape for path, array in drawn.items()} == params.shapes(SMALL)
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in drawn.values())


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=5, deadline=None)
def test_an_array_depends_on_the_seed_and_on_its_path_alone(seed):
    drawn = flat(params.random_params(SMALL, seed))
    wider = dataclasses.replace(SMALL, vocab_size=SMALL.vocab_size + 1)
    again = flat(params.random_params(wider, seed))
    other = flat(params.random_params(SMALL, seed + 1))
    for path, array in drawn.items():
        assert path.endswith("input_embedding") or np.array_equal(array, again[path])
        assert not np.array_equal(array, other[path])
