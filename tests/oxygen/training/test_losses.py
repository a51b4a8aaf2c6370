"""Losses, gradients, augmentation and optimiser; parameters give the same when trained and when served."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.training import TrainConfig
from contracts.errors import UsageError
from contracts.mode import Mode
from oxygen.model import params, pi05
from oxygen.model.params import initial_params
from oxygen.robots import tokenizer
from oxygen.serving.engine_config import EngineConfig
from oxygen.training import checkpoint
from oxygen.training import optimiser as optimisers
from oxygen.training.batches import TextLayout
from oxygen.training.losses import (
    Objective,
    augment,
    flow_loss,
    prefill_observations,
    sample_flow_times,
    text_logits,
    velocities,
)
from oxygen.training.optimiser import init_state, learning_rate_schedule, optimiser
from oxygen.training.run import train
from oxygen.training.run_folder import read_log
from tests.oxygen.compiling import COMPILED_SOON, compile_soon
from tests.oxygen.conftest import SMALL
from tests.oxygen.conftest import TASKS as SERVED_TASKS
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

KEY = jax.random.key(3)
compiled_soon = functools.partial(jax.jit, compiler_options=COMPILED_SOON)


@pytest.fixture(scope="module")
def batches():
    return training_batches(model=DEEP)


@pytest.fixture(scope="module")
def parameters():
    return jax.tree.map(jnp.asarray, initial_params(DEEP, 0))


def objective(batches, **recipe):
    return Objective(model=DEEP, options=changed(RECIPE, **recipe), layout=batches.layout)


@pytest.fixture(scope="module")
def gradient(batches):
    return compiled_soon(jax.value_and_grad(objective(batches).loss, has_aux=True))


def sizes(gradient):
    """Root mean square of the gradient of every parameter, layer by layer."""
    found = {}
    for path, leaf in by_path(gradient).items():
        layers = leaf if "/layers/" in path or "/encoderblock/" in path else leaf[None]
        for layer, part in enumerate(layers):
            found[f"{path} {layer}"] = float(np.sqrt(np.mean(np.square(part))))
    return found


def test_gradients_reach_every_parameter_of_every_layer(batches, parameters, gradient):
    """All but the keys' biases, which shift all logits of a query equally."""
    _, found = gradient(parameters, batches.batch(0), KEY)
    reached = sizes(found)
    assert np.isfinite(list(reached.values())).all()
    assert len(reached) > len(by_path(found))
    typical = np.median(list(reached.values()))
    untouched = {path for path, size in reached.items() if not size > 1e-3 * typical}
    assert untouched == {path for path in reached if "/key/bias" in path}


def test_nothing_depends_on_padding(batches, parameters, gradient):
    """Neither on tokens after a text's end nor on the prompt's padding."""
    batch = batches.batch(0)
    (loss, _), plain = gradient(parameters, batch, KEY)
    mask = np.asarray(batch.text_mask)
    padding = np.zeros_like(mask)  # after each text's last target
    for own in batches.layout.ranges.values():
        padding[:, own] = ~np.flip(np.maximum.accumulate(np.flip(mask[:, own], 1), 1), 1)
    assert padding.any()
    prompt_padding = np.arange(batch.prompt.shape[1])[None] >= np.asarray(batch.length)[:, None]
    other = dataclasses.replace(
        batch,
        text_tokens=jnp.where(padding, 99, batch.text_tokens),
        text_targets=jnp.where(mask, batch.text_targets, 77),
        prompt=jnp.where(prompt_padding, 55, batch.prompt),
    )
    (same, _), padded = gradient(parameters, other, KEY)
    assert float(same) == pytest.approx(float(loss), rel=1e-6)
    for path, leaf in by_path(padded).items():
        np.testing.assert_allclose(leaf, by_path(plain)[path], atol=1e-5, err_msg=path)


def test_actions_beyond_the_episode_are_masked(batches):
    batch = batches.batch(0)
    inside = np.asarray(batch.valid)[:, None, :, None]
    assert inside.any()
    assert not inside.all()
    target = jnp.asarray(np.random.default_rng(0).normal(size=(len(inside), 4, *batch.actions.shape[1:])))
    velocity = jnp.zeros_like(target)
    loss = float(flow_loss(velocity, target, batch))
    assert float(flow_loss(velocity, jnp.where(inside, target, 9.0), batch)) == loss
    assert float(flow_loss(velocity, jnp.where(inside, 9.0, target), batch)) == pytest.approx(81.0)
    assert loss == pytest.approx(np.mean(np.square(np.asarray(target)).mean((1, 3))[inside[:, 0, :, 0]]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actions", "texts", "reached"), [(False, True, True), (True, False, True), (False, False, False)]
)
def test_stopped_gradients_do_not_reach_the_vision_tower(batches, parameters, actions, texts, reached):
    stopped = objective(batches, actions_reach_prefix=actions, texts_reach_prefix=texts)
    gradient = compiled_soon(jax.grad(stopped.loss, has_aux=True))
    found, _ = gradient(parameters, batches.batch(0), KEY)
    tower = np.concatenate([np.abs(leaf).ravel() for leaf in by_path(found["PaliGemma"]["img"]).values()])
    assert (tower.max() > 0) == reached


def test_flow_times_are_those_of_pi05():
    """Beta(1.5, 1), squeezed into (0.001, 1]: its mean is 0.6, its median 0.5^(2/3)."""
    times = np.asarray(sample_flow_times(jax.random.key(0), (20_000,)))
    assert times.min() > 0.001
    assert times.max() <= 1
    assert times.mean() == pytest.approx(0.6 * 0.999 + 0.001, abs=0.005)
    assert np.median(times) == pytest.approx(0.5 ** (2 / 3), abs=0.01)


IMAGES = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 2, 50, 50, 3), dtype=np.uint8))
compiled = compiled_soon(augment, static_argnums=2)


def varied(seed, **how):
    return np.asarray(compiled(jax.random.key(seed), IMAGES, TrainConfig(steps=1, **how)))


def test_images_vary_with_the_key_and_only_when_asked_for():
    np.testing.assert_array_equal(compiled(jax.random.key(0), IMAGES, RECIPE), IMAGES)
    np.testing.assert_array_equal(varied(1), varied(1))
    assert not np.array_equal(varied(1), varied(2))


def test_every_image_is_moved_by_itself_and_by_no_more_than_told():
    moved = varied(0, image_shift=0.1, brightness=0.0, contrast=0.0, saturation=0.0).reshape(-1, 50, 50, 3)
    found = []
    for image, original in zip(moved, np.asarray(IMAGES).reshape(moved.shape), strict=True):
        padded = np.pad(original, ((5, 5), (5, 5), (0, 0)), mode="edge")
        places = [
            (down - 5, right - 5)
            for down in range(11)
            for right in range(11)
            if np.array_equal(padded[down : down + 50, right : right + 50], image)
        ]
        assert len(places) == 1
        found += places
    assert len(set(found)) > 1


GREY = np.full((4, 4, 3), 0)
RAMP = np.repeat(np.arange(-60, 61, 8)[:, None, None], 3, axis=2).repeat(16, axis=1)
COLOUR = np.broadcast_to(np.array([60, 0, -60]), (4, 4, 3))


@pytest.mark.parametrize(
    ("kind", "offsets"), [("brightness", GREY), ("contrast", RAMP), ("saturation", COLOUR)]
)
def test_each_image_is_brightened_or_scaled_by_an_amount_of_its_own(kind, offsets):
    images = jnp.broadcast_to(jnp.asarray(128 + offsets, jnp.uint8), (8, 1, *offsets.shape))
    jittered = compiled(jax.random.key(0), images, changed(RECIPE, **{kind: 0.3}))
    found = np.asarray(jittered).reshape(8, -1).astype(float) - 128
    if kind == "brightness":
        amounts, expected = found[:, 0] / 255, found[:, :1]
    else:
        scales = found @ offsets.ravel() / (offsets * offsets).sum()
        amounts, expected = scales - 1, scales[:, None] * offsets.ravel()
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=0.6)  # whole numbers
    assert len(set(amounts.round(3))) > 4
    assert 0.1 < np.abs(amounts).max() < 0.31


def bins(state):
    """Of 20 batches the state's bins as the prompts say them, [sample, channel]."""
    options = changed(RECIPE, state_noise=state)
    taught = training_batches(options=options, embodiment="libero_compact", tasks=())
    level = {VOCABULARY.byte(number): number for number in range(256)}
    batches = [taught.batch(number) for number in range(20)]
    prompts, lengths = (
        np.concatenate([getattr(each, of) for each in batches]) for of in ("prompt", "length")
    )
    ends = [line[length - 8 : length] for line, length in zip(prompts, lengths, strict=True)]
    return np.array([[level[token] for token in line.tolist()] for line in ends])


def test_the_states_noise_is_as_large_as_told():
    plain, noisy = bins(0.0), bins(0.05)
    inside = np.abs(plain - 127.5) < 90  # whatever is nearer to an end is held there
    assert inside.sum() > 400
    noise = (noisy - plain)[inside] / 128
    assert 0.045 < noise.std() < 0.055
    assert abs(noise.mean()) < 0.01


@pytest.fixture(scope="module")
def served_parameters():
    return jax.tree.map(jnp.asarray, params.random_params(SMALL, 0))


@pytest.fixture(scope="module")
def observed():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 2, 28, 28, 3), dtype=np.uint8)
    prompt = rng.integers(4, 768, (2, 16)).astype(np.int32)
    return jnp.asarray(images), jnp.asarray(prompt), jnp.asarray([9, 16], jnp.int32)


@pytest.fixture(scope="module")
def flow(served_parameters, observed):
    """The velocity of three draws for each of two observations, as training computes it."""

    @compiled_soon
    def of(times, noisy):
        weights = pi05.prepare(served_parameters, SMALL, times.reshape(-1))
        return velocities(weights, prefill_observations(weights, SMALL, *observed), noisy)

    return of


@pytest.mark.slow
def test_following_the_trained_velocity_gives_the_served_actions(served_parameters, observed, flow):
    images, prompt, length = observed
    weights = pi05.prepare(served_parameters, SMALL)

    @compiled_soon
    def served(noise):
        embedded = pi05.embed_prefix(weights, SMALL, images, prompt)
        prefix, _ = pi05.prefill(weights, embedded, length + SMALL.image_tokens)
        return pi05.denoise(weights, prefix, noise, SMALL.denoise_steps)

    rng = np.random.default_rng(3)
    noise = jnp.asarray(rng.standard_normal((2, 3, SMALL.horizon, SMALL.action_dim), dtype=np.float32))
    actions = noise
    for time in pi05.flow_times(SMALL.denoise_steps):
        actions = actions - flow(jnp.full((2, 3), time), actions) / SMALL.denoise_steps
    for draw in range(3):
        np.testing.assert_allclose(actions[:, draw], served(noise[:, draw]), atol=1e-3)


def test_every_draw_has_a_time_of_its_own(flow):
    noisy = jnp.ones((2, 3, SMALL.horizon, SMALL.action_dim))
    before = np.asarray(flow(jnp.asarray([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]), noisy))
    after = np.asarray(flow(jnp.asarray([[0.1, 0.2, 0.9], [0.4, 0.5, 0.6]]), noisy))
    changed = (np.abs(before - after) > 1e-6).any(axis=(2, 3))
    assert changed.tolist() == [[False, False, True], [False, False, False]]


def test_the_served_texts_are_those_that_training_scores_highest(served_parameters, policy, observe):
    """Both language tasks side by side, token by token, against what the engine writes one after another."""
    vocabulary, observation = tokenizer.tiny(), observe(4)
    inputs = policy.transform.inputs(observation, vocabulary, SMALL)
    layout = TextLayout(
        tasks=tuple(task.name for task in SERVED_TASKS),
        lengths=tuple(len(vocabulary.encode(task.prompt)) + task.max_tokens for task in SERVED_TASKS),
    )

    @compiled_soon
    def best(tokens):
        weights = pi05.prepare(served_parameters, SMALL, jnp.ones((1,)))
        prefix = prefill_observations(
            weights, SMALL, *map(jnp.asarray, (inputs.images, inputs.prompt, inputs.length))
        )
        return jnp.argmax(text_logits(weights, prefix, tokens, layout), axis=-1)[0]

    tokens = np.zeros((1, layout.tokens), np.int32)
    starts = [own.start for own in layout.ranges.values()]
    suffixes = [vocabulary.encode(task.prompt) for task in SERVED_TASKS]
    for start, suffix in zip(starts, suffixes, strict=True):
        tokens[0, start : start + len(suffix)] = suffix
    for written in range(max(task.max_tokens for task in SERVED_TASKS)):
        found = np.asarray(best(tokens))
        for start, suffix, task in zip(starts, suffixes, SERVED_TASKS, strict=True):
            if written < task.max_tokens:
                tokens[0, start + len(suffix) + written] = found[start + len(suffix) + written - 1]
    served = policy.with_engine(EngineConfig(mode=Mode.ISOLATED, slots=2, rows=2))
    served.reset(0)
    served.act(observation)
    said = {text.task: text.text for text in served.complete().finished}
    assert len(said) == len(SERVED_TASKS)
    for start, suffix, task in zip(starts, suffixes, SERVED_TASKS, strict=True):
        row = tokens[0, start + len(suffix) : start + len(suffix) + task.max_tokens].tolist()
        stop = row.index(vocabulary.eos) if vocabulary.eos in row else len(row)
        assert vocabulary.decode(row[:stop]).strip() == said[task.name]


FLAT_OUT = changed(RECIPE, warm_up=0, weight_decay=0.0, clip=1e6)


@pytest.fixture(scope="module")
def untrained():
    return initial_params(MODEL, 0)


def first_step(recipe, gradient, parameters):
    """What it adds to every parameter."""
    update = compiled_soon(optimiser(recipe).update)
    with jax.numpy_dtype_promotion("standard"):
        change, _ = update(gradient, init_state(parameters, recipe).optimiser, parameters)
    return by_path(change)


@pytest.fixture(scope="module")
def first_change(untrained):
    """What the first step of an optimiser adds, for a gradient that is random but of full rank."""
    rng = np.random.default_rng(0)
    gradient = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32), untrained)
    recipes = {name: changed(FLAT_OUT, optimiser=name) for name in ("muon", "adamw")}
    return {name: first_step(recipe, gradient, untrained) for name, recipe in recipes.items()}


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
    turned, plain = (as_matrix(first_change[name][path]) for name in ("muon", "adamw"))
    assert spread(turned) < 1.5 < spread(plain)


def test_both_optimisers_take_steps_of_one_size(first_change):
    rate = float(learning_rate_schedule(FLAT_OUT)(0))
    for name, change in first_change.items():
        for path, delta in change.items():
            assert 0.1 * rate < np.sqrt(np.mean(np.square(delta))) < 1.6 * rate, (name, path)  # Nesterov


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_embeddings_and_biases_never_decay(untrained, name):
    still = jax.tree.map(np.zeros_like, untrained)
    recipe = changed(FLAT_OUT, optimiser=name, weight_decay=0.1)
    moved = {path for path, delta in first_step(recipe, still, untrained).items() if delta.any()}
    assert {path for path in moved if path.endswith(("bias", "scale", "embedding"))} == set()
    assert "PaliGemma/llm/layers/mlp/linear" in moved


STEPS = 40
TEXTS_ONLY = changed(RECIPE, texts_only=True, warm_up=2, steps=STEPS, learning_rate=0.03, ema=0.5)


@pytest.fixture(scope="module")
def text_batches():
    return training_batches(options=TEXTS_ONLY, model=DEEP, start_from="x", norm_stats="x")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("muon", True), id="muon"),
        pytest.param(("muon", False), id="muon optimised", marks=pytest.mark.slow),
        pytest.param(("adamw", False), id="adamw optimised", marks=pytest.mark.slow),
    ],
)
def learnt(request, text_batches):
    """The losses of a few steps, the parameters before them, and the state after."""
    name, soon = request.param
    recipe = changed(TEXTS_ONLY, optimiser=name)
    with pytest.MonkeyPatch.context() as patch:
        if soon:
            compile_soon(patch)
        objective = Objective(model=DEEP, options=recipe, layout=text_batches.layout)
        step = functools.partial(optimisers.train_step, objective, None)
    before = initial_params(DEEP, 0)
    state, losses = init_state(before, recipe), []
    for number in range(STEPS):
        state, metrics = step(state, text_batches.batch(number))
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


def test_actions_are_the_same_to_the_last_bit_after_texts_were_trained(learnt, text_batches):
    _, before, state = learnt
    batch = text_batches.batch(0)

    @compiled_soon
    def actions(weights):
        prefix = prefill_observations(weights, DEEP, batch.images, batch.prompt, batch.length)
        noise = jnp.zeros_like(batch.actions)
        return pi05.denoise(weights, prefix, noise, DEEP.denoise_steps)

    was, now = (np.asarray(actions(pi05.prepare(params, DEEP))) for params in (before, state.average))
    assert was.any()
    np.testing.assert_array_equal(was, now)


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> str:
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
