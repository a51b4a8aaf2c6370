"""Configurations, parameters, attention; guidance, on flows of known answers; adapters and int8 weights."""

import dataclasses
import functools
import json
import mmap
import sys

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import UsageError
from oxygen.model import adapter as adapters
from oxygen.model import gemma, guidance, params, pi05
from oxygen.model.config import PI05_LIBERO, TINY
from oxygen.model.guidance import Guidance, guided, soft_mask
from oxygen.model.int8 import quantised
from oxygen.model.siglip import Stem
from oxygen.serving.engine_config import EngineConfig, check_serves
from oxygen.serving.requests import Request
from oxygen.serving.runner import ProgramSizes, Runner
from oxygen.weights.adapter import AdapterSource, write_adapter
from oxygen.weights.source import ADAPTER_CARD
from tests.oxygen.compiling import COMPILED_SOON
from tests.oxygen.conftest import SMALL, flat

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


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=2)
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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it may stay resident")
def test_a_released_layer_frees_its_memory_and_keeps_the_others():
    stack = params.empty_array((4, 32 * _MIB), np.dtype(np.uint8))
    stack[...] = 1
    process = psutil.Process()
    before = process.memory_info().rss
    params.release_memory(stack[1])
    assert before - process.memory_info().rss > 30 * _MIB
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
    heads = np.asarray(gemma.attention(as_q, as_k, as_v, jnp.asarray(mask)))
    for row in range(BATCH):
        np.testing.assert_allclose(heads[row], plain(q[row], k[row], v[row], mask[row]), atol=1e-5)


SHAPE = 2, 3, 2
"""Robots, actions, channels."""


def normal(seed):
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


@pytest.mark.parametrize("time", [1.0, 0.7, 0.1])
def test_a_linear_flow_is_pulled_by_the_transpose_of_its_jacobian(time):
    """Of a flow with velocity M x + b, where M mixes the actions and channels of a robot."""
    rng = np.random.default_rng(0)
    matrix, offset = rng.normal(size=(6, 6)).astype(np.float32), rng.normal(size=(1, 6)).astype(np.float32)
    x, wanted = normal(1), normal(2)
    weight = rng.uniform(size=SHAPE[:2]).astype(np.float32)

    def velocity_at(x):
        return (x.reshape(2, 6) @ matrix.T + offset).reshape(SHAPE), "what else there is"

    pulled, besides = guided(
        velocity_at, jnp.asarray(x), jnp.float32(time), Guidance(actions=wanted, weight=weight)
    )
    own = np.asarray(velocity_at(x)[0])
    jacobian = np.eye(6) - time * matrix
    error = (weight[..., None] * (wanted - (x - time * own))).reshape(2, 6)
    progress = 1 - time
    strength = 5.0 if time == 1.0 else min(5.0, (time**2 + progress**2) / (time * progress))
    expected = own - strength * (error @ jacobian).reshape(SHAPE)
    assert np.asarray(pulled) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert besides == "what else there is"


def test_of_normal_actions_the_guided_flow_draws_from_those_that_agree(monkeypatch):
    """Actions are independent, of variance 1: those under way come out as they are, others as unguided."""
    monkeypatch.setattr(guidance, "MAX_WEIGHT", 1e3)
    mean, steps = normal(3), 400
    wanted, weight = normal(4), np.array([[1, 1, 0], [0, 0, 0]], np.float32)

    def velocity_at(time, x):
        """Towards the mean of the actions, given where they are now."""
        progress = 1 - time
        gain = progress / (progress**2 + time**2)
        return (x - (mean + gain * (x - progress * mean))) / time, None

    def followed(guidance):
        def euler(step, x):
            time = 1.0 - step.astype(jnp.float32) / steps
            at = functools.partial(velocity_at, time)
            return x - (at(x) if guidance is None else guided(at, x, time, guidance))[0] / steps

        return np.asarray(jax.jit(lambda x: jax.lax.fori_loop(0, steps, euler, x))(normal(5)))

    drawn, free = followed(Guidance(actions=wanted, weight=weight)), followed(None)
    assert drawn[0, :2] == pytest.approx(wanted[0, :2], abs=0.01)
    assert drawn[0, 2] == pytest.approx(free[0, 2], abs=1e-5)
    assert drawn[1] == pytest.approx(free[1], abs=1e-5)
    assert np.abs(free[0, :2] - wanted[0, :2]).max() > 0.1


def test_the_mask_is_that_of_the_paper():
    """H = 6, d = 2, s = 1: c falls from 3/4 to 1/4 in the middle, and the weight is c (e^c - 1) / (e - 1)."""
    middle = [c * (np.exp(c) - 1) / (np.e - 1) for c in (3 / 4, 2 / 4, 1 / 4)]
    assert soft_mask(6, left=5, delay=2) == pytest.approx([1, 1, *middle, 0])
    assert soft_mask(3, left=2, delay=2).tolist() == [1, 1, 0]
    assert soft_mask(2, left=2, delay=0)[0] < 1


def test_the_chunk_before_is_counted_from_the_action_of_the_observation():
    chunk = normal(6)[0]
    towards = Guidance.towards(chunk, first=1, delay=9)
    assert towards.actions.tolist() == [[*chunk[1:].tolist(), [0, 0]]]
    assert towards.weight.tolist() == [[1, 1, 0]]
    assert towards.guides.tolist() == [True]
    assert not Guidance.none(SHAPE).guides.any()


SIZES = ProgramSizes(slots=1, rows=(1,), forks=(1,), suffix=3, limit=8)
BELOW = "PaliGemma/llm/layers/"


@functools.cache
def weights_of(config):
    return pi05.prepare(params.random_params(config, 0), config)


def answer(config, adapter, *, int8=False):
    """Actions of an observation, the prefix, its text, and the keys of the last layer's text."""
    runner = Runner(config, weights_of(config), dataclasses.replace(SIZES, int8_decode=int8), adapter=adapter)
    prefix = runner.prefill(runner.blank(config.prompt_buckets[0]))
    actions = runner.denoise(prefix, [3], [0])
    new = runner.new_requests([Request(slot=0, robot=0, suffix=(5, 9, 301), query=0, task=0)])
    state = runner.fork(prefix, new, *runner.empty())
    for _ in range(SIZES.limit):
        state = runner.decode([0], *state, batch=1)
    keys = [np.asarray(leaf) for leaf in (*prefix.k, *prefix.v)]
    text = np.asarray(state[1].written)[0]
    return np.asarray(actions), keys, text, np.asarray(state[0][-1].k)[0]


def random_adapter(config, mask="exact", rank=3, alpha=3.0):
    arrays = adapters.random_arrays(config, rank=rank, seed=1)
    return adapters.prepare(arrays, config, weights_of(config), alpha=alpha, mask=mask, prompt_slots=32)


@functools.cache
def answer_with(mask=None, *, int8=False, dtype="float32"):
    """With a random adapter of that mask; without one if None."""
    config = dataclasses.replace(SMALL, dtype=dtype)
    return answer(config, None if mask is None else random_adapter(config, mask), int8=int8)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_actions_and_prefix_are_the_same_bits_and_texts_are_not(dtype):
    without = answer_with(dtype=dtype)
    for mask in ("exact", "published"):
        found = answer_with(mask, dtype=dtype)
        assert found[0].tobytes() == without[0].tobytes()
        assert all(one.tobytes() == other.tobytes() for one, other in zip(found[1], without[1], strict=True))
        assert (found[2] >= 0).all()
        assert np.abs(found[3].astype(np.float32) - without[3].astype(np.float32)).max() > 0.01


@pytest.mark.parametrize(("mask", "most"), [(None, 0.1), ("exact", 0.2)])
def test_int8_decode_weights_change_texts_and_no_action_also_with_an_adapter(mask, most):
    exact, rounded = (answer_with(mask, int8=int8) for int8 in (False, True))
    assert exact[0].tobytes() == rounded[0].tobytes()
    assert (exact[2] >= 0).all()
    assert (rounded[2] >= 0).all()
    assert 0 < np.abs(exact[3] - rounded[3]).max() / np.abs(exact[3]).max() < most


def test_a_zero_adapter_with_the_exact_mask_changes_nothing():
    arrays = {name: 0 * array for name, array in adapters.random_arrays(SMALL, rank=2, seed=0).items()}
    adapter = adapters.prepare(arrays, SMALL, weights_of(SMALL), alpha=2.0)
    without, found = answer_with(), answer(SMALL, adapter)
    assert (found[2] == without[2]).all()
    np.testing.assert_allclose(found[3], without[3], atol=1e-5)


def test_a_model_that_is_opened_again_shares_programs_with_other_weights_and_none_with_other_shapes():
    model, wider = (
        Runner(SMALL, weights_of(SMALL), size) for size in (SIZES, dataclasses.replace(SIZES, limit=9))
    )
    again = Runner(SMALL, pi05.prepare(params.random_params(SMALL, 1), SMALL), SIZES)
    assert again.programs is model.programs
    assert wider.programs.prefill == model.programs.prefill
    assert wider.programs.fork != model.programs.fork
    actions = [each.denoise(each.prefill(each.blank(24)), [3], [0]) for each in (model, again)]
    assert not np.array_equal(*actions)


def test_its_memory_is_its_own_size():
    adapter = random_adapter(SMALL)
    weights = weights_of(SMALL)
    shared = {id(leaf) for leaf in jax.tree.leaves(weights)}
    added = [leaf for leaf in jax.tree.leaves(adapter.on(weights)) if id(leaf) not in shared]
    arrays = adapters.random_arrays(SMALL, rank=3, seed=1)
    assert 0 < sum(leaf.nbytes for leaf in added) <= sum(array.nbytes for array in arrays.values())


def test_names_and_shapes_are_those_of_the_published_file():
    shapes = adapters.shapes(PI05_LIBERO.trunk, 16)
    assert len(shapes) == 10
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 27_869_184
    assert shapes[f"{BELOW}attn/attn_vec_einsum/lora_b"] == (18, 8, 16, 2048)
    assert shapes[f"{BELOW}mlp/gating_einsum_lora_b"] == (18, 2, 16, 16384)


def test_the_card_beside_a_file_gives_alpha_and_mask(tmp_path):
    file, weights = tmp_path / "a.npz", weights_of(SMALL)
    arrays = adapters.random_arrays(SMALL, rank=2, seed=0)
    write_adapter(file, arrays, {"rank": 2, "alpha": 6, "mask": "published"})
    loaded = AdapterSource(file=str(file)).load(SMALL, weights)
    assert loaded.layers[0]["qkv"].scale == 3.0
    assert loaded.layers[0]["down"].scale == 1.0
    assert loaded.stale is not None
    assert AdapterSource(file=str(file), mask="exact").load(SMALL, weights).stale is None
    (tmp_path / ADAPTER_CARD).unlink()
    assert AdapterSource(file=str(file)).load(SMALL, weights).layers[0]["qkv"].scale == 1.0


def refusal(tmp_path, change, **source):
    arrays = dict(adapters.random_arrays(SMALL, rank=2, seed=0))
    change(arrays)
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError) as refused:
        AdapterSource(file=str(tmp_path / "a.npz"), **source).load(SMALL, weights_of(SMALL))
    return str(refused.value)


def test_bad_adapters_are_refused_in_one_line(tmp_path):
    down = f"{BELOW}mlp/linear_lora_a"
    shape = adapters.shapes(SMALL.trunk, 2)[down]
    deep, nan = np.zeros((9, *shape[1:]), np.float32), np.full(shape, np.nan, np.float32)
    for said, change, source in (
        ("is missing (1 of 10)", lambda arrays: arrays.pop(down), {}),
        ("lora_a", lambda arrays: arrays.update(lora_a=nan), {}),
        ("belongs to another model", lambda arrays: arrays.update({down: deep}), {}),
        ("not finite", lambda arrays: arrays.update({down: nan}), {}),
        ("has rank 2, and the policy says 16", lambda _: None, {"rank": 16}),
        ("SHA-256", lambda _: None, {"sha256": "0" * 64}),
    ):
        assert said in refusal(tmp_path, change, **source)
    for card, said in (({"rank": 8}, f"{ADAPTER_CARD} says 8"), ({"mask": "both"}, "unknown mask 'both'")):
        (tmp_path / ADAPTER_CARD).write_text(json.dumps(card))
        assert said in refusal(tmp_path, lambda _: None)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_int8_weights_are_at_most_half_a_step_off_and_take_a_matrixs_place_in_products(dtype):
    rng = np.random.default_rng(0)
    matrix = jnp.asarray(rng.normal(size=(40, 24)), dtype).at[:, 3].set(0)
    x = jnp.asarray(rng.normal(size=(2, 5, 40)), dtype)
    found = quantised(matrix)
    assert (found.values.dtype, found.shape) == (jnp.int8, matrix.shape)
    assert jnp.abs(found.values).max() == 127
    dequantised = np.asarray(found.values, np.float32) * np.asarray(found.scale)
    off = np.abs(dequantised - np.asarray(matrix, np.float32))
    assert (off <= 0.5001 * np.asarray(found.scale)).all()
    product = jax.jit(lambda x, m: x @ m)(x, found)
    assert (product.shape, product.dtype) == ((2, 5, 24), x.dtype)
    exact = np.asarray(x, np.float32) @ dequantised
    np.testing.assert_allclose(np.asarray(product, np.float32), exact, rtol=2e-2, atol=2e-2)


def test_an_engine_cannot_ask_for_other_weights_than_the_programs_have():
    with pytest.raises(UsageError, match="int8_decode is True"):
        check_serves(EngineConfig(int8_decode=True, slots=1, rows=1), SIZES)
