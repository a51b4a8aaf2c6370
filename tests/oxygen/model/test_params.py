"""Parameters have openpi's tree and depend on seed and path alone; parts of host arrays can be given back."""

import dataclasses
import mmap
from pathlib import Path

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oxygen.model import params
from oxygen.model.config import TINY
from oxygen.model.siglip import Stem
from tests.oxygen.compiling import COMPILED_SOON
from tests.oxygen.conftest import SMALL

_KV_OF_ITS_OWN = dataclasses.replace(SMALL.trunk, num_kv_heads=SMALL.trunk.num_heads)
OWN_KV = dataclasses.replace(SMALL, trunk=_KV_OF_ITS_OWN, expert=_KV_OF_ITS_OWN)


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


def flat(tree):
    return flax.traverse_util.flatten_dict(tree, sep="/")


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=5)
def test_an_array_depends_on_the_seed_and_on_its_path_alone(seed):
    sampled = flat(params.random_params(SMALL, seed))
    assert {path: array.shape for path, array in sampled.items()} == params.shapes(SMALL)
    wider = dataclasses.replace(SMALL, vocab_size=SMALL.vocab_size + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(params, "_DRAWN_AT_ONCE", 101)  # drawing in pieces changes no number
        again = flat(params.random_params(wider, seed))
    other = flat(params.random_params(SMALL, seed + 1))
    for path, array in sampled.items():
        assert path.endswith("input_embedding") or np.array_equal(array, again[path])
        assert not np.array_equal(array, other[path])


@pytest.mark.parametrize("model", [TINY, OWN_KV])
def test_initial_parameters_are_those_of_the_model_and_depend_on_the_seed(model):
    one, same, other = (flat(params.initial_params(model, seed)) for seed in (0, 0, 1))
    assert {path: leaf.shape for path, leaf in one.items()} == params.shapes(model)
    for path, array in one.items():
        np.testing.assert_array_equal(array, same[path])
    assert not np.array_equal(one["action_in_proj/kernel"], other["action_in_proj/kernel"])


_MIB = 1 << 20


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_a_released_layer_frees_its_memory_and_keeps_the_others():
    stack = params.empty_array((4, 32 * _MIB), np.dtype(np.uint8))
    stack[...] = 1
    before = _resident()
    params.release_memory(stack[1])
    assert before - _resident() > 30 * _MIB
    assert [int(layer.min()) for layer in stack] == [1, 0, 1, 1]


def test_empty_and_other_arrays_are_left_alone():
    assert [params.empty_array(shape, np.dtype(np.float32)).shape for shape in ((), (0, 3))] == [(), (0, 3)]
    array = np.ones((2, 3 * mmap.PAGESIZE), np.uint8)
    params.release_memory(array[0])
    assert array.all()
    strided = params.empty_array((4, mmap.PAGESIZE), np.dtype(np.uint8))
    strided[...] = 1
    params.release_memory(strided[:, ::2])
    params.release_memory(strided[0, :100])  # less than a page
    assert strided.all()
