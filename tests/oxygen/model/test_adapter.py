"""An adapter and int8 weights change texts and no action; bad files are refused in one line."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.model import adapter as adapters
from oxygen.model import params, pi05
from oxygen.model.config import PI05_LIBERO
from oxygen.model.int8 import quantised
from oxygen.serving.engine_config import EngineConfig, check_serves
from oxygen.serving.requests import Request
from oxygen.serving.runner import ProgramSizes, Runner
from oxygen.weights.adapter import CARD, AdapterSource, write_adapter
from tests.oxygen.conftest import SMALL

SIZES = ProgramSizes(slots=1, rows=(1,), forks=(1,), suffix=3, limit=8)
BELOW = "PaliGemma/llm/layers/"


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
    return np.asarray(actions), keys, text, np.asarray(state[0].layers[-1].k)[0]


def random_adapter(config, mask="exact", rank=3, alpha=3.0):
    arrays = adapters.random_arrays(config, rank=rank, seed=1)
    return adapters.prepare(arrays, config, weights_of(config), alpha=alpha, mask=mask, prompt_slots=32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_actions_and_prefix_are_the_same_bits_and_texts_are_not(dtype):
    config = dataclasses.replace(SMALL, dtype=dtype)
    without = answer(config, None)
    for mask in ("exact", "published"):
        found = answer(config, random_adapter(config, mask))
        assert found[0].tobytes() == without[0].tobytes()
        assert all(one.tobytes() == other.tobytes() for one, other in zip(found[1], without[1], strict=True))
        assert (found[2] >= 0).all()
        assert np.abs(found[3].astype(np.float32) - without[3].astype(np.float32)).max() > 0.01


@pytest.mark.parametrize(("adapted", "most"), [(False, 0.1), (True, 0.2)])
def test_int8_decode_weights_change_texts_and_no_action_also_with_an_adapter(adapted, most):
    adapter = random_adapter(SMALL) if adapted else None
    exact, rounded = (answer(SMALL, adapter, int8=int8) for int8 in (False, True))
    assert exact[0].tobytes() == rounded[0].tobytes()
    assert (exact[2] >= 0).all()
    assert (rounded[2] >= 0).all()
    assert 0 < np.abs(exact[3] - rounded[3]).max() / np.abs(exact[3]).max() < most


def test_a_zero_adapter_with_the_exact_mask_changes_nothing():
    arrays = {name: 0 * array for name, array in adapters.random_arrays(SMALL, rank=2, seed=0).items()}
    adapter = adapters.prepare(arrays, SMALL, weights_of(SMALL), alpha=2.0)
    without, found = answer(SMALL, None), answer(SMALL, adapter)
    assert (found[2] == without[2]).all()
    np.testing.assert_allclose(found[3], without[3], atol=1e-5)


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
    (tmp_path / CARD).unlink()
    assert AdapterSource(file=str(file)).load(SMALL, weights).layers[0]["qkv"].scale == 1.0


def refusal(tmp_path, change, **source):
    arrays = dict(adapters.random_arrays(SMALL, rank=2, seed=0))
    change(arrays)
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError) as refused:
        AdapterSource(file=str(tmp_path / "a.npz"), **source).load(SMALL, weights_of(SMALL))
    assert "\n" not in str(refused.value)
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
    for card, said in (({"rank": 8}, f"{CARD} says 8"), ({"mask": "both"}, "unknown mask 'both'")):
        (tmp_path / CARD).write_text(json.dumps(card))
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
