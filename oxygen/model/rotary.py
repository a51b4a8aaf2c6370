"""Rotary position embedding (RoFormer, arXiv 2104.09864)."""

import flax.struct
import jax.numpy as jnp
import numpy as np

from oxygen.typing import Array, Float, Int32, Leaf


@flax.struct.dataclass
class RotaryTables:
    """Sines and cosines of the rotary angles, computed once for all layers.

    Attributes:
        sin, cos: [batch, token, 1, dim / 2], in float32.
    """

    sin: Leaf
    cos: Leaf

    def scaled(self, by: float) -> "RotaryTables":
        """Tables that also scale the heads by a factor, at no extra cost."""
        return RotaryTables(sin=self.sin * by, cos=self.cos * by)

    def at(self, positions: Int32[Array, "batch token"]) -> "RotaryTables":
        """The entries of some positions of a `table`; positions beyond its end are clipped."""
        return RotaryTables(
            sin=jnp.take(self.sin[0], positions, axis=0, mode="clip"),
            cos=jnp.take(self.cos[0], positions, axis=0, mode="clip"),
        )


def table(size: int, dim: int) -> RotaryTables:
    """Tables of positions 0 to `size` - 1, [1, size, 1, dim / 2], as constants of a program.

    Inside a program, XLA would compute the sines again in every layer and for every head.
    """
    timescale = np.float32(10_000.0) ** (np.float32(2.0 / dim) * np.arange(dim // 2, dtype=np.float32))
    radians = np.arange(size, dtype=np.float32)[None, :, None, None] / timescale
    return RotaryTables(sin=jnp.asarray(np.sin(radians)), cos=jnp.asarray(np.cos(radians)))


def angles(positions: Int32[Array, "batch token"], dim: int) -> RotaryTables:
    """Tables of given positions, with wavelengths up to 10 000, for heads of `dim` channels."""
    timescale = 10_000.0 ** (2.0 / dim * jnp.arange(dim // 2, dtype=jnp.float32))
    radians = positions[..., None, None].astype(jnp.float32) / timescale[None, None, None]
    return RotaryTables(sin=jnp.sin(radians), cos=jnp.cos(radians))


def rope(
    x: Float[Array, "batch token head dim"], angles: RotaryTables
) -> Float[Array, "batch token head dim"]:
    """Rotate the two halves of every head by its position's angles, in float32."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate(
        [first * angles.cos - second * angles.sin, second * angles.cos + first * angles.sin], axis=-1
    )
    return rotated.astype(x.dtype)
