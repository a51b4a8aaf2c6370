"""Rotary position embedding (RoFormer, arXiv 2104.09864): angles by position, and heads turned by them."""

import flax.struct
import jax.numpy as jnp
import numpy as np

from oxygen.typing import Array, Float, Int32, Leaf


@flax.struct.dataclass
class Turns:
    """Rotary position embedding, worked out once for all layers.

    Attributes:
        sin, cos: Of every position's angles, [batch, token, 1, dim / 2], in float32.
    """

    sin: Leaf
    cos: Leaf

    def scaled(self, by: float) -> "Turns":
        """Those that also make heads `by` times as long: no pass over turned heads is needed for that."""
        return Turns(sin=self.sin * by, cos=self.cos * by)

    def at(self, positions: Int32[Array, "batch token"]) -> "Turns":
        """Those of some positions, out of a `table`; what lies beyond it takes its last."""
        return Turns(
            sin=jnp.take(self.sin[0], positions, axis=0, mode="clip"),
            cos=jnp.take(self.cos[0], positions, axis=0, mode="clip"),
        )


def table(size: int, dim: int) -> Turns:
    """The angles of positions from 0 to `size`, [1, size, 1, dim / 2], as constants of a program.

    XLA works out sines anew in every layer and for every head if they are its own to work out.
    """
    timescale = np.float32(10_000.0) ** (np.float32(2.0 / dim) * np.arange(dim // 2, dtype=np.float32))
    radians = np.arange(size, dtype=np.float32)[None, :, None, None] / timescale
    return Turns(sin=jnp.asarray(np.sin(radians)), cos=jnp.asarray(np.cos(radians)))


def turns(positions: Int32[Array, "batch token"], dim: int) -> Turns:
    """The angles of positions, with wavelengths up to 10 000, for heads of `dim` channels."""
    timescale = 10_000.0 ** (2.0 / dim * jnp.arange(dim // 2, dtype=jnp.float32))
    radians = positions[..., None, None].astype(jnp.float32) / timescale[None, None, None]
    return Turns(sin=jnp.sin(radians), cos=jnp.cos(radians))


def rope(x: Float[Array, "batch token head dim"], by: Turns) -> Float[Array, "batch token head dim"]:
    """Turn the two halves of every head by its position's angles, in float32."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * by.cos - second * by.sin, second * by.cos + first * by.sin], axis=-1)
    return turned.astype(x.dtype)
