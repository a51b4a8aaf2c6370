"""What is trained is what is served: the same numbers come from the same parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oxygen.model import params, pi05
from oxygen.robots import tokenizer
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.scheduler import Mode
from oxygen.training.batches import TextLayout
from oxygen.training.losses import prefill_observations, text_logits, velocities
from tests.oxygen.compiling import COMPILED_SOON
from tests.oxygen.conftest import SMALL, TASKS

compiled_soon = functools.partial(jax.jit, compiler_options=COMPILED_SOON)


@pytest.fixture(scope="module")
def parameters():
    """Those of the served policy of these tests."""
    return jax.tree.map(jnp.asarray, params.random_params(SMALL, 0))


@pytest.fixture(scope="module")
def observed():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 2, 28, 28, 3), dtype=np.uint8)
    prompt = rng.integers(4, 768, (2, 16)).astype(np.int32)
    return jnp.asarray(images), jnp.asarray(prompt), jnp.asarray([9, 16], jnp.int32)


@pytest.fixture(scope="module")
def flow(parameters, observed):
    """The velocity of three draws for each of two observations, as training computes it."""

    @compiled_soon
    def of(times, noisy):
        weights = pi05.prepare(parameters, SMALL, times.reshape(-1))
        return velocities(weights, prefill_observations(weights, SMALL, *observed), noisy)

    return of


@pytest.mark.slow
def test_following_the_trained_velocity_gives_the_served_actions(parameters, observed, flow):
    images, prompt, length = observed
    weights = pi05.prepare(parameters, SMALL)

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


def test_the_served_texts_are_those_that_training_scores_highest(parameters, policy, observe):
    """Both language tasks side by side, token by token, against what the engine writes one after another."""
    vocabulary, observation = tokenizer.tiny(), observe(4)
    inputs = policy.transform.inputs(observation, vocabulary, SMALL)
    layout = TextLayout(
        tasks=tuple(task.name for task in TASKS),
        lengths=tuple(len(vocabulary.encode(task.prompt)) + task.max_tokens for task in TASKS),
    )

    @compiled_soon
    def best(tokens):
        weights = pi05.prepare(parameters, SMALL, jnp.ones((1,)))
        prefix = prefill_observations(
            weights, SMALL, *map(jnp.asarray, (inputs.images, inputs.prompt, inputs.length))
        )
        return jnp.argmax(text_logits(weights, prefix, tokens, layout), axis=-1)[0]

    tokens = np.zeros((1, layout.tokens), np.int32)
    starts = [own.start for own in layout.ranges.values()]
    suffixes = [vocabulary.encode(task.prompt) for task in TASKS]
    for start, suffix in zip(starts, suffixes, strict=True):
        tokens[0, start : start + len(suffix)] = suffix
    for written in range(max(task.max_tokens for task in TASKS)):
        found = np.asarray(best(tokens))
        for start, suffix, task in zip(starts, suffixes, TASKS, strict=True):
            if written < task.max_tokens:
                tokens[0, start + len(suffix) + written] = found[start + len(suffix) + written - 1]
    served = policy.with_engine(EngineConfig(mode=Mode.ISOLATED, slots=2, rows=2))
    served.reset(0)
    served.act(observation)
    said = {text.task: text.text for text in served.complete().finished}
    assert len(said) == len(TASKS)
    for start, suffix, task in zip(starts, suffixes, TASKS, strict=True):
        row = tokens[0, start + len(suffix) : start + len(suffix) + task.max_tokens].tolist()
        stop = row.index(vocabulary.eos) if vocabulary.eos in row else len(row)
        assert vocabulary.decode(row[:stop]).strip() == said[task.name]
