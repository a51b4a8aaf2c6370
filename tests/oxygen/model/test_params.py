"""Configurations and parameters, and attention, which is a softmax over what each query may see."""

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

from configs.errors import UsageError
from oxygen.model import gemma, params
from oxygen.model.config import PI05_LIBERO, TINY
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


@pytest.mark.parametrize(("length", "bucket"), [(1, 32), (32, 32), (33, 64), (129, 200), (200, 200)])
def test_a_prompt_goes_into_the_smallest_bucket(length, bucket):
    assert PI05_LIBERO.bucket(length) == bucket


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (TINY, {"dtype": "float16"}, "unknown dtype 'float16'"),
        (TINY, {"expert": dataclasses.replace(TINY.expert, depth=5)}, "depth is 4 in the trunk and 5"),
        (TINY, {"image_size": 113}, "113 is not a multiple of patch 16"),
        (TINY, {"noise_scale": 1.5}, "noise scale is 1.5; give 0 to 1"),
        (TINY.trunk, {"num_kv_heads": 3}, "4 query heads cannot be shared among 3"),
        (TINY.siglip, {"width": 130}, "130 is not a multiple of its 4 heads"),
        (TINY.siglip, {"patch": 14, "stem": (8, 24)}, "give a multiple of 4"),
    ],
)
def test_configurations_that_cannot_be_are_refused(part, changes, message):
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(part, **changes)


BATCH, QUERIES, HEADS, DIM, POSITIONS = 3, 4, 6, 8, 21


def plain(q, k, v, mask):
    """Softmax attention of one row, head by head, in double precision."""
    heads_of_each, out = q.shape[1] // k.shape[1], np.empty_like(q)
    for head in range(q.shape[1]):
        logits = q[:, head] @ k[:, head // heads_of_each].T
        weights = np.where(mask, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0.0)
        out[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ v[:, head // heads_of_each]
    return out


@pytest.mark.parametrize("kv_heads", [1, 2, 3])
@pytest.mark.parametrize("queries", [1, QUERIES], ids=["a mask for all queries", "a mask for each"])
def test_every_head_attends_to_what_its_row_may_see(kv_heads, queries):
    rng = np.random.default_rng(0)
    q = rng.standard_normal((BATCH, QUERIES, HEADS, DIM))
    k, v = rng.standard_normal((2, BATCH, POSITIONS, kv_heads, DIM))
    mask = rng.random((BATCH, queries, POSITIONS)) < 0.6
    as_k, as_v, as_q = (jnp.asarray(each, jnp.float32) for each in (k, v, q))
    heads = np.asarray(gemma.attention(as_q, gemma.KeyValues(k=as_k, v=as_v, mask=jnp.asarray(mask))))
    for row in range(BATCH):
        np.testing.assert_allclose(heads[row], plain(q[row], k[row], v[row], mask[row]), atol=1e-5)
