"""Weight-only int8: the trunk's matrices with one scale per output channel, for decoding texts.

Decoding a few texts reads every weight once per token, so half the bytes are nearly half the time on a GPU.
Texts change; actions do not, because prefill and denoising keep the weights as loaded.
"""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from oxygen.model.pi05 import Weights
from oxygen.typing import Array, Float, Float32, Leaf

_LARGEST = 127.0
_MATRICES = ("qkv", "out", "gate_up", "down")


@flax.struct.dataclass
class Int8Matrix:
    """A matrix as symmetric int8 values; takes the place of an array in `x @ matrix`."""

    values: Leaf  # int8, [in, out]
    scale: Leaf  # what one step of each column is worth, in float32, [out]

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.values.shape

    def product(self, x: Float[Array, "*batch rows"]) -> Float32[Array, "*batch columns"]:
        """`x` times the matrix, accumulated in float32."""
        wide = jnp.matmul(x, self.values.astype(x.dtype), preferred_element_type=jnp.float32)
        return wide * self.scale.reshape((1,) * (x.ndim - 1) + self.scale.shape)

    def __rmatmul__(self, x: Float[Array, "*batch rows"]) -> Float[Array, "*batch columns"]:
        return self.product(x).astype(x.dtype)


@jax.jit
def quantised(matrix: Float[Array, "rows columns"]) -> Int8Matrix:
    """The nearest int8 values, where each column's largest magnitude is 127."""
    wide = matrix.astype(jnp.float32)
    scale = jnp.maximum(jnp.max(jnp.abs(wide), axis=0), jnp.finfo(jnp.float32).tiny) / _LARGEST
    return Int8Matrix(values=jnp.round(wide / scale[None]).astype(jnp.int8), scale=scale)


def for_decoding(weights: Weights) -> Weights:
    """The same weights with the trunk's matrices and the projection to logits in int8.

    Shares all other arrays. Takes memory for a second trunk and embedding, one byte per weight.
    """
    return dataclasses.replace(
        weights,
        trunk=tuple(
            dataclasses.replace(layer, **{name: quantised(getattr(layer, name)) for name in _MATRICES})
            for layer in weights.trunk
        ),
        text_head=quantised(weights.embedding.T),
    )
