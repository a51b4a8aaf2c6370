"""Only texts are learnt: what is said changes, and not one bit of what is done."""

import dataclasses
import functools
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.model import pi05
from oxygen.robots.transforms import LIBERO, Transform
from oxygen.training import checkpoint
from oxygen.training.forward import read_prefix
from oxygen.training.initial import initial_params
from oxygen.training.lessons import Lessons
from oxygen.training.logs import read_log
from oxygen.training.losses import Objective
from oxygen.training.optimiser import begin, make_step
from oxygen.training.recipe import RUN_FILE
from oxygen.training.run import train
from oxygen.training.samples import Mixture
from oxygen.training.statistics import measure, norms_of
from oxygen.training.trainer import Schedule
from tests.oxygen.compiling import COMPILED_SOON, compile_soon
from tests.oxygen.training.conftest import MODEL, RECIPE, TASKS, VOCABULARY, samples, training

DEEP = dataclasses.replace(
    MODEL,
    trunk=dataclasses.replace(MODEL.trunk, depth=2),
    expert=dataclasses.replace(MODEL.expert, depth=2),
)
"""Of two layers, so that the last one can be told from the first."""

STEPS = 40
TEXTS_ONLY = dataclasses.replace(RECIPE, texts_only=True, warm_up=2, steps=STEPS, learning_rate=0.03, ema=0.5)


@pytest.fixture(scope="module")
def lessons():
    mixture = Mixture((samples(8),))
    transform = Transform(embodiment=LIBERO, norms=norms_of(measure(mixture)))
    return Lessons(
        mixture, model=DEEP, transform=transform, tokenizer=VOCABULARY, tasks=TASKS, recipe=TEXTS_ONLY
    )


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
def learnt(request, lessons):
    """The losses of a few steps, the parameters before them, and the state after."""
    name, compiled = request.param
    recipe = dataclasses.replace(TEXTS_ONLY, optimiser=name)
    with pytest.MonkeyPatch.context() as patch:
        compiled(patch)
        step = make_step(Objective(model=DEEP, recipe=recipe, tasks=lessons.tasks, layout=lessons.layout))
    before = initial_params(DEEP, 0)
    state, losses = begin(before, recipe), []
    for number in range(STEPS):
        state, metrics = step(state, lessons.batch(number))
        losses.append(float(metrics["loss"]))
    return losses, before, state


def by_path(tree):
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in paths}


def test_texts_are_learnt(learnt):
    losses, _, _ = learnt
    assert losses[-1] < 0.8 * losses[0]


def test_of_the_parameters_only_those_change_that_texts_alone_pass_through(learnt):
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


def test_actions_are_the_same_to_the_last_bit(learnt, lessons):
    _, before, state = learnt
    batch = lessons.batch(0)

    @functools.partial(jax.jit, compiler_options=COMPILED_SOON)
    def actions(weights):
        prefix = read_prefix(weights, DEEP, batch.images, batch.prompt, batch.length)
        noise = jnp.zeros_like(batch.actions)
        return pi05.denoise(weights, prefix, noise, DEEP.denoise_steps)

    was, now = (np.asarray(actions(pi05.prepare(params, DEEP))) for params in (before, state.average))
    assert was.any()
    np.testing.assert_array_equal(was, now)


def test_some_rows_without_texts_would_be_for_nothing():
    with pytest.raises(UsageError, match="text_rows is 2 of a batch of 8, and only texts are learnt"):
        dataclasses.replace(TEXTS_ONLY, text_rows=2)


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> str:
    """A checkpoint to go on from."""
    folder = tmp_path_factory.mktemp("start")
    train(folder, training(steps=2), Mixture((samples(8),)), VOCABULARY)
    return str(checkpoint.newest(folder / "checkpoints"))


def only_texts(start: str, **changes):
    recipe = dataclasses.replace(RECIPE, **{"texts_only": True, "steps": 30, **changes})
    return dataclasses.replace(training(), recipe=recipe, start_from=start, norm_stats=start)


@pytest.mark.slow
def test_texts_are_learnt_from_failures_alone_interrupted_or_not(start, tmp_path):
    """Of a policy that solves nothing every frame has a text, and none an action."""
    failed = samples(8, seed=5)
    failures = Mixture((dataclasses.replace(failed, valid=np.zeros_like(failed.valid)),))
    with pytest.raises(UsageError, match="no action is valid in any frame"):
        train(tmp_path / "actions", training(), failures, VOCABULARY)
    whole = train(
        tmp_path / "whole", only_texts(start), failures, VOCABULARY, schedule=Schedule(log_every=10)
    )
    first, *_, last = read_log(tmp_path / "whole")
    assert last["narration_loss"] < first["narration_loss"]
    assert "flow_loss" not in last
    for count in (17, 30):
        stop = itertools.count(1)
        schedule = Schedule(should_stop=lambda stop=stop, count=count: next(stop) == count)
        resumed = train(tmp_path / "cut", only_texts(start), failures, VOCABULARY, schedule=schedule)
    assert [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(resumed)] == [
        np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(whole)
    ]


@pytest.mark.parametrize(("missing", "nothing"), [("start_from", None), ("norm_stats", None), ("tasks", ())])
def test_they_need_a_policy_that_acts_already_and_texts(missing, nothing):
    with pytest.raises(UsageError, match=f"give {missing}"):
        dataclasses.replace(only_texts("some/checkpoint"), **{missing: nothing})


@pytest.mark.slow
def test_a_training_from_before_this_was_possible_does_not_become_one(start, tmp_path):
    mixture = Mixture((samples(8),))
    plain = only_texts(start, texts_only=False, steps=1)
    train(tmp_path, plain, mixture, VOCABULARY)
    described = json.loads((tmp_path / RUN_FILE).read_text())
    del described["recipe"]["texts_only"]
    (tmp_path / RUN_FILE).write_text(json.dumps(described))
    train(tmp_path, plain, mixture, VOCABULARY)
    with pytest.raises(UsageError, match=r"recipe\.texts_only = False, not True"):
        train(tmp_path, only_texts(start, steps=1), mixture, VOCABULARY)
