"""Training texts alone leaves the actions the same to the bit."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.model import pi05
from oxygen.model.params import initial_params
from oxygen.training import checkpoint, optimiser
from oxygen.training.losses import Objective, prefill_observations
from oxygen.training.optimiser import init_state
from oxygen.training.run import train
from oxygen.training.run_folder import read_log
from tests.oxygen.compiling import COMPILED_SOON, compile_soon
from tests.oxygen.training.conftest import (
    DEEP,
    RECIPE,
    VOCABULARY,
    StopAt,
    bits,
    by_path,
    changed,
    samples,
    training,
    training_batches,
)

STEPS = 40
TEXTS_ONLY = changed(RECIPE, texts_only=True, warm_up=2, steps=STEPS, learning_rate=0.03, ema=0.5)


@pytest.fixture(scope="module")
def batches():
    return training_batches(options=TEXTS_ONLY, model=DEEP, start_from="x", norm_stats="x")


def as_users_have_it(patch: pytest.MonkeyPatch) -> None:
    """Optimise the step."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("muon", compile_soon), id="muon"),
        pytest.param(("muon", as_users_have_it), id="muon optimised", marks=pytest.mark.slow),
        pytest.param(("adamw", as_users_have_it), id="adamw optimised", marks=pytest.mark.slow),
    ],
)
def learnt(request, batches):
    """The losses of a few steps, the parameters before them, and the state after."""
    name, compiled = request.param
    recipe = changed(TEXTS_ONLY, optimiser=name)
    with pytest.MonkeyPatch.context() as patch:
        compiled(patch)
        objective = Objective(model=DEEP, options=recipe, layout=batches.layout)
        step = functools.partial(optimiser.train_step, objective, None)
    before = initial_params(DEEP, 0)
    state, losses = init_state(before, recipe), []
    for number in range(STEPS):
        state, metrics = step(state, batches.batch(number))
        losses.append(float(metrics["loss"]))
    return losses, before, state


def test_the_text_loss_falls(learnt):
    losses, _, _ = learnt
    assert losses[-1] < 0.8 * losses[0]


def test_only_text_only_parameters_change(learnt):
    _, before, state = learnt
    old = by_path(before)
    for learnt_ones in (by_path(state.params), by_path(state.average)):
        changed = {path for path in old if not np.array_equal(old[path], learnt_ones[path])}
        llm = "PaliGemma/llm/"
        assert changed == {
            f"{llm}layers/attn/q_einsum/w",
            f"{llm}layers/attn/attn_vec_einsum/w",
            f"{llm}layers/pre_ffw_norm/scale",
            f"{llm}layers/mlp/gating_einsum",
            f"{llm}layers/mlp/linear",
            f"{llm}final_norm/scale",
        }
        for path in changed - {f"{llm}final_norm/scale"}:
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
        resumed = train(tmp_path / "cut", only_texts(start), failures, VOCABULARY, should_stop=StopAt(count))
    assert bits(resumed) == bits(whole)


@pytest.mark.parametrize(("missing", "nothing"), [("start_from", None), ("norm_stats", None), ("tasks", ())])
def test_texts_only_needs_a_checkpoint_its_statistics_and_tasks(missing, nothing):
    with pytest.raises(UsageError, match=f"give {missing}"):
        dataclasses.replace(only_texts("some/checkpoint"), **{missing: nothing})
