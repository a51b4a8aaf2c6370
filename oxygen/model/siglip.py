"""SigLIP's vision tower in flax: uint8 images to one embedding per patch, of the trunk's width."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from oxygen.model.config import SiglipConfig
from oxygen.model.gemma import attention
from oxygen.typing import Array, Float, UInt8


class LayerNorm(nn.Module):
    """Layer normalisation with float32 statistics, whatever the compute type."""

    @nn.compact
    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        """Normalise the last axis."""
        width = x.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (width,)).astype(jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (width,)).astype(jnp.float32)
        wide = x.astype(jnp.float32)
        centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        normed = centred * jax.lax.rsqrt(variance + 1e-6)
        shape = (1,) * (x.ndim - 1) + (width,)
        return (normed * scale.reshape(shape) + bias.reshape(shape)).astype(x.dtype)


class MlpBlock(nn.Module):
    """The two dense layers of an encoder block, with the tanh form of GELU between them."""

    mlp_dim: int

    @nn.compact
    def __call__(self, x: Float[Array, "batch token width"]) -> Float[Array, "batch token width"]:
        """Transform every token by itself."""
        hidden = nn.gelu(nn.Dense(self.mlp_dim, dtype=x.dtype)(x))
        return nn.Dense(x.shape[-1], dtype=x.dtype)(hidden)


class Projection(nn.Module):
    """The parameters of a dense layer to or from heads, as a matrix [in, out] and a bias [out]."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @nn.compact
    def __call__(self, dtype: jnp.dtype) -> tuple[Array, Array]:
        """The parameters, cast."""
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (*self.rows, *self.columns))
        bias = self.param("bias", nn.initializers.zeros, self.columns)
        return kernel.reshape(math.prod(self.rows), -1).astype(dtype), bias.reshape(-1).astype(dtype)


class SelfAttention(nn.Module):
    """Self-attention with flax's parameters and one matrix product for all projections."""

    heads: int

    @nn.compact
    def __call__(self, x: Float[Array, "batch token width"]) -> Float[Array, "batch token width"]:
        """Full attention among the tokens of an image."""
        batch, tokens, width = x.shape
        by_head = (self.heads, width // self.heads)
        into = [Projection((width,), by_head, name=name)(x.dtype) for name in ("query", "key", "value")]
        kernel, bias = (jnp.concatenate(parts, axis=-1) for parts in zip(*into, strict=True))
        every = (x @ kernel + bias.reshape(1, 1, -1)).reshape(batch, tokens, 3 * self.heads, -1)
        q, k, v = jnp.split(every, 3, axis=2)
        all_seen = jnp.ones((batch, 1, tokens), bool)
        mixed = attention(q * by_head[1] ** -0.5, k, v, all_seen).reshape(x.shape)
        out, bias = Projection(by_head, (width,), name="out")(x.dtype)
        return mixed @ out + bias.reshape(1, 1, -1)


class EncoderBlock(nn.Module):
    """Attention and MLP, both pre-normed and residual. Returns (tokens, None), as `nn.scan` requires."""

    config: SiglipConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch token width"], _: None = None
    ) -> tuple[Float[Array, "batch token width"], None]:
        """Apply the block."""
        normed = LayerNorm(name="LayerNorm_0")(x)
        x = x + SelfAttention(self.config.num_heads, name="MultiHeadDotProductAttention_0")(normed)
        normed = LayerNorm(name="LayerNorm_1")(x)
        return x + MlpBlock(self.config.mlp_dim, name="MlpBlock_0")(normed), None


class Encoder(nn.Module):
    """The blocks, scanned over parameters stacked along the first axis, and a final norm."""

    config: SiglipConfig

    @nn.compact
    def __call__(self, x: Float[Array, "batch token width"]) -> Float[Array, "batch token width"]:
        """Run all blocks."""
        blocks = nn.scan(
            EncoderBlock,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=self.config.depth,
        )
        x, _ = blocks(self.config, name="encoderblock")(x, None)
        return LayerNorm(name="encoder_norm")(x)


class PatchEmbedding(nn.Module):
    """A convolution whose stride is its kernel, written as one matrix product; in float32."""

    patch: int
    width: int

    @nn.compact
    def __call__(
        self, pixels: Float[Array, "batch side side channel"]
    ) -> Float[Array, "batch row row width"]:
        """Embed each patch of an image or of a feature map."""
        patch, channels = self.patch, pixels.shape[-1]
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (patch, patch, channels, self.width))
        bias = self.param("bias", nn.initializers.zeros, (self.width,)).astype(jnp.float32)
        batch, side = pixels.shape[0], pixels.shape[1] // patch
        patches = pixels.reshape(batch, side, patch, side, patch, channels).transpose(0, 1, 3, 2, 4, 5)
        flat = patches.reshape(batch, side, side, patch * patch * channels)
        return flat @ kernel.reshape(-1, self.width).astype(jnp.float32) + bias.reshape(1, 1, 1, self.width)


class Stem(nn.Module):
    """The stages before the last patch embedding: small patches, merged 2x2."""

    config: SiglipConfig

    @nn.compact
    def __call__(self, pixels: Float[Array, "batch side side 3"]) -> Float[Array, "batch row row channel"]:
        """Embed and merge; returns the images unchanged if there are no stages."""
        patch = self.config.patch >> len(self.config.stem)
        for stage, width in enumerate(self.config.stem):
            pixels = nn.gelu(PatchEmbedding(patch, width, name=f"stage_{stage}")(pixels))
            patch = 2
        return pixels


class Siglip(nn.Module):
    """The tower."""

    config: SiglipConfig  # its sizes
    out_width: int  # channels of the embeddings it returns (the trunk's width)
    dtype: str  # compute type of everything after the patch embedding

    @nn.compact
    def __call__(self, images: UInt8[Array, "batch side side 3"]) -> Float[Array, "batch token out"]:
        """Embed images whose pixels are scaled from 0..255 to [-1, 1]."""
        pixels = images.astype(jnp.float32) / 255.0 * 2.0 - 1.0
        merged = 2 if self.config.stem else self.config.patch
        squares = Stem(self.config, name="stem")(pixels)
        x = PatchEmbedding(merged, self.config.width, name="embedding")(squares)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        where = self.param("pos_embedding", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        x = (x + where.astype(jnp.float32)).astype(self.dtype)
        x = Encoder(self.config, name="Transformer")(x)
        return nn.Dense(self.out_width, dtype=jnp.dtype(self.dtype), name="head")(x)
