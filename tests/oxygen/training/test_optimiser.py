"""The optimiser, and how texts alone are trained, which leaves the actions the same to the bit."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.model import pi05
from oxygen.model.params import initial_params
from oxygen.training import checkpoint
from oxygen.training import optimiser as optimisers
from oxygen.training.losses import Objective, prefill_observations
from oxygen.training.optimiser import init_state, learning_rate_schedule, optimiser
from oxygen.training.run import train
from oxygen.training.run_folder import read_log
from tests.oxygen.compiling import COMPILED_SOON, compile_soon
from tests.oxygen.training.conftest import (
    DEEP,
    MODEL,
    RECIPE,
    VOCABULARY,
    bits,
    by_path,
    changed,
    samples,
    stop_at,
    training,
    training_batches,
)

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


STEPS = 40
TEXTS_ONLY = changed(RECIPE, texts_only=True, warm_up=2, steps=STEPS, learning_rate=0.03, ema=0.5)


@pytest.fixture(scope="module")
def batches():
    return training_batches(options=TEXTS_ONLY, model=DEEP, start_from="x", norm_stats="x")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("muon", True), id="muon"),
        pytest.param(("muon", False), id="muon optimised", marks=pytest.mark.slow),
        pytest.param(("adamw", False), id="adamw optimised", marks=pytest.mark.slow),
    ],
)
def learnt(request, batches):
    """The losses of a few steps, the parameters before them, and the state after."""
    name, soon = request.param
    recipe = changed(TEXTS_ONLY, optimiser=name)
    with pytest.MonkeyPatch.context() as patch:
        if soon:
            compile_soon(patch)
        objective = Objective(model=DEEP, options=recipe, layout=batches.layout)
        step = functools.partial(optimisers.train_step, objective, None)
    before = initial_params(DEEP, 0)
    state, losses = init_state(before, recipe), []
    for number in range(STEPS):
        state, metrics = step(state, batches.batch(number))
        losses.append(float(metrics["loss"]))
    return losses, before, state


def test_the_text_loss_falls_and_only_text_only_parameters_change(learnt):
    losses, before, state = learnt
    assert losses[-1] < 0.8 * losses[0]
    old, norm = by_path(before), "PaliGemma/llm/final_norm/scale"
    layers = "attn/q_einsum/w attn/attn_vec_einsum/w pre_ffw_norm/scale mlp/gating_einsum mlp/linear"
    for learnt_ones in (by_path(state.params), by_path(state.average)):
        changed = {path for path in old if not np.array_equal(old[path], learnt_ones[path])}
        assert changed == {norm, *(f"PaliGemma/llm/layers/{path}" for path in layers.split())}
        for path in changed - {norm}:
            np.testing.assert_array_equal(old[path][:-1], learnt_ones[path][:-1], err_msg=path)


def test_actions_are_the_same_to_the_last_bit(learnt, batches):
    _, before, state = learnt
    batch = batches.batch(0)

    @functools.partial(jax.jit, compiler_options=COMPILED_SOON)
    def actions(weights):
        prefix = prefill_observations(weights, DEEP, batch.images, batch.prompt, batch.length)
        noise = jnp.zeros_like(batch.actions)
        return pi05.denoise(weights, prefix, noise, DEEP.denoise_steps)

    was, now = (np.asarray(actions(pi05.prepare(params, DEEP))) for params in (before, state.average))
    assert was.any()
    np.testing.assert_array_equal(was, now)


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> str:
    """A checkpoint to start from."""
    folder = tmp_path_factory.mktemp("start")
    train(folder, training(steps=2), samples(8), VOCABULARY)
    return str(checkpoint.newest(folder / "checkpoints"))


def only_texts(start: str, **changes):
    recipe = changed(RECIPE, **{"texts_only": True, "steps": 30, **changes})
    return dataclasses.replace(training(), options=recipe, start_from=start, norm_stats=start)


@pytest.mark.slow
def test_texts_can_be_trained_on_failures_and_resumed(start, tmp_path):
    """Frames of failed episodes have texts, but no valid actions."""
    failed = samples(8, seed=5)
    failures = dataclasses.replace(failed, valid=np.zeros_like(failed.valid))
    with pytest.raises(UsageError, match="no action is valid in any frame"):
        train(tmp_path / "actions", training(), failures, VOCABULARY)
    whole = train(tmp_path / "whole", only_texts(start, log_every=10), failures, VOCABULARY)
    first, *_, last = read_log(tmp_path / "whole")
    assert last["narration_loss"] < first["narration_loss"]
    assert "flow_loss" not in last
    for count in (17, 30):
        resumed = train(tmp_path / "cut", only_texts(start), failures, VOCABULARY, should_stop=stop_at(count))
    assert bits(resumed) == bits(whole)


@pytest.mark.parametrize(("missing", "nothing"), [("start_from", None), ("norm_stats", None), ("tasks", ())])
def test_texts_only_needs_a_checkpoint_its_statistics_and_tasks(missing, nothing):
    with pytest.raises(UsageError, match=f"give {missing}"):
        dataclasses.replace(only_texts("some/checkpoint"), **{missing: nothing})
