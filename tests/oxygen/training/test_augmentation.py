"""Varied images: still images, all different, and the same for the same key."""

import jax
import jax.numpy as jnp
import numpy as np

from oxygen.training.augmentation import augment
from oxygen.training.recipe import NO_AUGMENTATION, Augmentation

IMAGES = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 2, 50, 50, 3), dtype=np.uint8))


def varied(seed, **how):
    return np.asarray(augment(jax.random.key(seed), IMAGES, Augmentation(**how)))


def test_nothing_is_varied_when_nothing_is_asked_for():
    np.testing.assert_array_equal(augment(jax.random.key(0), IMAGES, NO_AUGMENTATION), IMAGES)


def test_the_key_decides():
    np.testing.assert_array_equal(varied(1), varied(1))
    assert not np.array_equal(varied(1), varied(2))


def test_every_image_is_moved_by_itself_and_by_no_more_than_told():
    moved = varied(0, shift=0.1, brightness=0.0, contrast=0.0, saturation=0.0).reshape(-1, 50, 50, 3)
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


def test_brightness_moves_all_pixels_of_an_image_alike():
    grey = jnp.full((8, 1, 4, 4, 3), 128, jnp.uint8)
    how = Augmentation(shift=0.0, brightness=0.2, contrast=0.0, saturation=0.0)
    lit = np.asarray(augment(jax.random.key(0), grey, how)).reshape(8, -1)
    assert (lit == lit[:, :1]).all()
    assert len(set(lit[:, 0].tolist())) == 8
    assert np.abs(lit.astype(int) - 128).max() <= 52
