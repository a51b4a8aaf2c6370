"""Variation of camera images, in the compiled step: moved, brighter or darker, paler or richer in colour."""

import jax
import jax.numpy as jnp

from oxygen.training.recipe import Recipe
from oxygen.typing import Array, Float32, UInt8


def augment(
    key: Array, images: UInt8[Array, "batch camera side side 3"], recipe: Recipe
) -> UInt8[Array, "batch camera side side 3"]:
    """Vary every image by itself; a function of the key and its place in the batch."""
    moving, colouring = jax.random.split(key)
    flat = images.reshape(-1, *images.shape[2:])
    reach = round(recipe.image_shift * images.shape[2])
    if reach:
        flat = jax.vmap(_moved)(flat, jax.random.randint(moving, (len(flat), 2), -reach, reach + 1))
    if recipe.brightness or recipe.contrast or recipe.saturation:
        limits = jnp.asarray([recipe.brightness, recipe.contrast, recipe.saturation], jnp.float32)
        amounts = jax.random.uniform(colouring, (len(flat), 3), jnp.float32, -1.0, 1.0) * limits[None]
        flat = jax.vmap(_coloured)(flat, amounts)
    return flat.reshape(images.shape)


def _moved(image: UInt8[Array, "side side 3"], by: Array) -> UInt8[Array, "side side 3"]:
    """The image moved by whole pixels; where nothing is left to see, the border goes on."""
    places = jnp.arange(image.shape[0], dtype=jnp.int32)
    rows, columns = (jnp.clip(places + by[axis], 0, image.shape[axis] - 1) for axis in (0, 1))
    return image[rows][:, columns]


def _coloured(
    image: UInt8[Array, "side side 3"], amounts: Float32[Array, " 3"]
) -> UInt8[Array, "side side 3"]:
    brightness, contrast, saturation = amounts
    pixels = image.astype(jnp.float32)
    grey = jnp.mean(pixels, axis=-1, keepdims=True)
    pixels = grey + (pixels - grey) * (1.0 + saturation)
    mean = jnp.mean(grey)
    pixels = mean + (pixels - mean) * (1.0 + contrast) + 255.0 * brightness
    return jnp.clip(jnp.round(pixels), 0.0, 255.0).astype(jnp.uint8)
