"""Image augmentation inside the compiled training step: random shift, brightness, contrast, saturation."""

import jax
import jax.numpy as jnp

from configs.training import TrainConfig
from oxygen.typing import Array, Float32, UInt8


def augment(
    key: Array, images: UInt8[Array, "batch camera side side 3"], options: TrainConfig
) -> UInt8[Array, "batch camera side side 3"]:
    """Augment every image independently, as a function of the key and its index in the batch."""
    shift_key, color_key = jax.random.split(key)
    flat = images.reshape(-1, *images.shape[2:])
    max_shift = round(options.image_shift * images.shape[2])
    if max_shift:
        shifts = jax.random.randint(shift_key, (len(flat), 2), -max_shift, max_shift + 1)
        flat = jax.vmap(_shift)(flat, shifts)
    if options.brightness or options.contrast or options.saturation:
        limits = jnp.asarray([options.brightness, options.contrast, options.saturation], jnp.float32)
        amounts = jax.random.uniform(color_key, (len(flat), 3), jnp.float32, -1.0, 1.0) * limits[None]
        flat = jax.vmap(_jitter_color)(flat, amounts)
    return flat.reshape(images.shape)


def _shift(image: UInt8[Array, "side side 3"], pixels: Array) -> UInt8[Array, "side side 3"]:
    """Shift an image by whole pixels, replicating its border."""
    index = jnp.arange(image.shape[0], dtype=jnp.int32)
    rows, columns = (jnp.clip(index + pixels[axis], 0, image.shape[axis] - 1) for axis in (0, 1))
    return image[rows][:, columns]


def _jitter_color(
    image: UInt8[Array, "side side 3"], amounts: Float32[Array, " 3"]
) -> UInt8[Array, "side side 3"]:
    brightness, contrast, saturation = amounts
    pixels = image.astype(jnp.float32)
    grey = jnp.mean(pixels, axis=-1, keepdims=True)
    pixels = grey + (pixels - grey) * (1.0 + saturation)
    mean = jnp.mean(grey)
    pixels = mean + (pixels - mean) * (1.0 + contrast) + 255.0 * brightness
    return jnp.clip(jnp.round(pixels), 0.0, 255.0).astype(jnp.uint8)
