"""Varied images: still images, all different, and the same for the same key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.training import TrainConfig
from oxygen.training.losses import augment
from tests.oxygen.compiling import COMPILED_SOON
from tests.oxygen.training.conftest import RECIPE, VOCABULARY, changed, training_batches

IMAGES = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 2, 50, 50, 3), dtype=np.uint8))


compiled = jax.jit(augment, static_argnums=2, compiler_options=COMPILED_SOON)


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
    taught = training_batches(
        options=changed(RECIPE, state_noise=state), embodiment="libero_compact", tasks=()
    )
    level = {VOCABULARY.byte(number): number for number in range(256)}
    batches = [taught.batch(number) for number in range(20)]
    lines = [
        np.asarray(line)[length - 8 : length]
        for batch in batches
        for line, length in zip(np.asarray(batch.prompt), np.asarray(batch.length), strict=True)
    ]
    return np.array([[level[token] for token in line.tolist()] for line in lines])


def test_the_states_noise_is_as_large_as_told():
    plain, noisy = bins(0.0), bins(0.05)
    inside = np.abs(plain - 127.5) < 90  # whatever is nearer to an end is held there
    assert inside.sum() > 400
    noise = (noisy - plain)[inside] / 128
    assert 0.045 < noise.std() < 0.055
    assert abs(noise.mean()) < 0.01
