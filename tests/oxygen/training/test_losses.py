"""The loss: what it counts, what it ignores, and whom its gradients reach."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oxygen.robots.transforms import LIBERO, Transform
from oxygen.training.initial import initial_params
from oxygen.training.lessons import Lessons
from oxygen.training.losses import Objective, draw_times, flow_loss, text_loss
from oxygen.training.samples import Mixture
from oxygen.training.statistics import measure, norms_of
from tests.oxygen.compiling import COMPILED_SOON
from tests.oxygen.training.conftest import MODEL, RECIPE, TASKS, VOCABULARY, samples

KEY = jax.random.key(3)


DEEP = dataclasses.replace(
    MODEL,
    siglip=dataclasses.replace(MODEL.siglip, depth=2),
    trunk=dataclasses.replace(MODEL.trunk, depth=2),
    expert=dataclasses.replace(MODEL.expert, depth=2),
)
"""Of two layers each, so that the last one can be told from the others."""


@pytest.fixture(scope="module")
def lessons():
    mixture = Mixture((samples(8),))
    transform = Transform(embodiment=LIBERO, norms=norms_of(measure(mixture)))
    return Lessons(mixture, model=DEEP, transform=transform, tokenizer=VOCABULARY, tasks=TASKS, recipe=RECIPE)


@pytest.fixture(scope="module")
def parameters():
    return jax.tree.map(jnp.asarray, initial_params(DEEP, 0))


def objective(lessons, **recipe):
    return Objective(
        model=DEEP,
        recipe=dataclasses.replace(RECIPE, **recipe),
        tasks=lessons.tasks,
        layout=lessons.layout,
    )


@pytest.fixture(scope="module")
def gradient(lessons):
    return jax.jit(jax.value_and_grad(objective(lessons).loss, has_aux=True), compiler_options=COMPILED_SOON)


def flat(tree):
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in paths}


def sizes(gradient):
    """Root mean square of the gradient of every parameter, layer by layer."""
    found = {}
    for path, leaf in flat(gradient).items():
        layers = leaf if "/layers/" in path or "/encoderblock/" in path else leaf[None]
        for layer, part in enumerate(layers):
            found[f"{path} {layer}"] = float(np.sqrt(np.mean(np.square(part))))
    return found


def test_gradients_reach_every_parameter_of_every_layer(lessons, parameters, gradient):
    """All but those that mean nothing: a bias of the keys moves all scores of a query alike."""
    _, found = gradient(parameters, lessons.batch(0), KEY)
    reached = sizes(found)
    assert np.isfinite(list(reached.values())).all()
    assert len(reached) > len(flat(found))
    typical = np.median(list(reached.values()))
    untouched = {path for path, size in reached.items() if not size > 1e-3 * typical}
    assert untouched == {path for path in reached if "/key/bias" in path}


def test_nothing_depends_on_padding(lessons, parameters, gradient):
    """Not on tokens after a text's end, not on the prompt's padding."""
    batch = lessons.batch(0)
    (loss, _), plain = gradient(parameters, batch, KEY)
    graded = np.asarray(batch.graded)
    ahead = np.zeros_like(graded)  # what comes after a text's last graded token, within its task's stretch
    start = 0
    for length in lessons.layout.lengths:
        stretch = graded[:, start : start + length]
        ahead[:, start : start + length] = ~np.flip(np.maximum.accumulate(np.flip(stretch, 1), 1), 1)
        start += length
    assert ahead.any()
    beyond = np.arange(batch.prompt.shape[1])[None] >= np.asarray(batch.length)[:, None]
    other = dataclasses.replace(
        batch,
        tokens=jnp.where(ahead, 99, batch.tokens),
        following=jnp.where(graded, batch.following, 77),
        prompt=jnp.where(beyond, 55, batch.prompt),
    )
    (same, _), padded = gradient(parameters, other, KEY)
    assert float(same) == pytest.approx(float(loss), rel=1e-6)
    for path, leaf in flat(padded).items():
        np.testing.assert_allclose(leaf, flat(plain)[path], atol=1e-5, err_msg=path)


def test_the_suffix_is_read_but_not_graded(lessons):
    """The first graded token is the one that follows the suffix's last; the last one is the stop token."""
    batch = lessons.batch(0)
    start = 0
    for task, length in zip(TASKS, lessons.layout.lengths, strict=True):
        graded = np.asarray(batch.graded)[:, start : start + length]
        following = np.asarray(batch.following)[:, start : start + length]
        suffix = len(VOCABULARY.encode(task.prompt))
        for row in np.flatnonzero(graded.any(axis=1)):
            places = np.flatnonzero(graded[row])
            assert places[0] == suffix - 1
            assert following[row][places[-1]] == VOCABULARY.eos
            assert VOCABULARY.decode(following[row][places[:-1]].tolist()).endswith(".")
        start += length


def test_actions_after_the_episodes_end_are_not_graded(lessons):
    batch = lessons.batch(0)
    inside = np.asarray(batch.valid)[:, None, :, None]
    assert inside.any()
    assert not inside.all()
    wanted = jnp.asarray(np.random.default_rng(0).normal(size=(len(inside), 4, *batch.actions.shape[1:])))
    velocity = jnp.zeros_like(wanted)
    loss = float(flow_loss(velocity, wanted, batch))
    assert float(flow_loss(velocity, jnp.where(inside, wanted, 9.0), batch)) == loss
    assert float(flow_loss(velocity, jnp.where(inside, 9.0, wanted), batch)) == pytest.approx(81.0)
    assert loss == pytest.approx(np.mean(np.square(np.asarray(wanted)).mean((1, 3))[inside[:, 0, :, 0]]))


def test_an_unknown_text_costs_nothing():
    scores = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 768)), jnp.float32)
    following = jnp.full((2, 5), 7, jnp.int32)
    graded = jnp.asarray([[True] * 5, [False] * 5])
    graded_loss = jax.jit(text_loss, compiler_options=COMPILED_SOON)
    alone = graded_loss(scores[:1], following[:1], graded[:1])
    both = graded_loss(scores, following, graded)
    assert float(both["loss"]) == pytest.approx(float(alone["loss"]))
    assert float(graded_loss(scores, following, jnp.zeros_like(graded))["loss"]) == 0


@pytest.mark.parametrize(
    ("actions", "texts", "reached"),
    [
        (False, True, True),
        pytest.param(True, False, True, marks=pytest.mark.slow),
        pytest.param(False, False, False, marks=pytest.mark.slow),
    ],
)
def test_gradients_reach_the_tower_through_whom_they_may(lessons, parameters, actions, texts, reached):
    ours = objective(lessons, actions_reach_prefix=actions, texts_reach_prefix=texts)
    of_loss = jax.jit(jax.grad(ours.loss, has_aux=True), compiler_options=COMPILED_SOON)
    found, _ = of_loss(parameters, lessons.batch(0), KEY)
    tower = np.concatenate([np.abs(leaf).ravel() for leaf in flat(found["PaliGemma"]["img"]).values()])
    assert (tower.max() > 0) == reached


def test_flow_times_are_those_of_pi05():
    """Beta(1.5, 1), squeezed into (0.001, 1]: its mean is 0.6, its median 0.5^(2/3)."""
    times = np.asarray(draw_times(jax.random.key(0), (20_000,)))
    assert times.min() > 0.001
    assert times.max() <= 1
    assert times.mean() == pytest.approx(0.6 * 0.999 + 0.001, abs=0.005)
    assert np.median(times) == pytest.approx(0.5 ** (2 / 3), abs=0.01)
