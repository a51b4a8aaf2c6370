"""The differentiable forward pass of training: one prefill, read by actions and texts.

It calls the served model's `pi05.prefill` and `pi05.velocity`. Unlike serving, every flow sample has its own
time, and all tokens of a text are processed in parallel.
"""

import dataclasses
import itertools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from oxygen.model import gemma, pi05
from oxygen.model.config import Pi05Config
from oxygen.model.pi05 import Prefix, Weights
from oxygen.serving import decode
from oxygen.typing import Array, Float32, Int32, UInt8


@dataclasses.dataclass(frozen=True)
class TextLayout:
    """The token ranges of a sample's concatenated texts, one range for each language task."""

    tasks: tuple[str, ...]  # names of the language tasks
    lengths: tuple[int, ...]  # tokens of each task's range

    @property
    def tokens(self) -> int:
        """Tokens of all ranges together."""
        return sum(self.lengths)

    @property
    def ranges(self) -> Mapping[str, slice]:
        """Each task's range."""
        ends = itertools.accumulate(self.lengths)
        return {
            task: slice(end - length, end)
            for task, length, end in zip(self.tasks, self.lengths, ends, strict=True)
        }


def prefill_observations(
    weights: Weights,
    config: Pi05Config,
    images: UInt8[Array, "batch camera side side 3"],
    prompt: Int32[Array, "batch token"],
    length: Int32[Array, " batch"],
) -> Prefix:
    """Prefill observations whose prompts have `length` tokens."""
    embedded = pi05.embed_prefix(weights, config, images, prompt)
    return pi05.prefill(weights, embedded, length + config.image_tokens)[0]


def velocities(
    weights: Weights, prefix: Prefix, noisy: Float32[Array, "batch draw horizon action"]
) -> Float32[Array, "batch draw horizon action"]:
    """The flow's velocity for several noise draws of every sample.

    Args:
        weights: From `pi05.prepare`, for the flattened times [batch * draw].
        prefix: KV cache of the samples' observations.
        noisy: Interpolations between noise and actions.
    """
    batch, draws = noisy.shape[:2]

    def of_draw(prefix: Prefix, actions: Array, step: Array) -> Array:
        row = jax.tree.map(lambda leaf: leaf[None], prefix)
        return pi05.velocity(weights, row, actions[None], step)[0]

    of_sample = jax.vmap(of_draw, in_axes=(None, 0, 0))
    steps = jnp.arange(batch * draws, dtype=jnp.int32).reshape(batch, draws)
    return jax.vmap(of_sample)(prefix, noisy, steps)


def text_logits(
    weights: Weights, prefix: Prefix, tokens: Int32[Array, "batch token"], layout: TextLayout
) -> Float32[Array, "batch token vocab"]:
    """Next-token logits at every token of the texts, which all follow the same prefix."""
    task = np.repeat(np.arange(len(layout.lengths)), layout.lengths)
    starts = [own.start for own in layout.ranges.values()]
    offsets = (np.arange(layout.tokens) - np.repeat(starts, layout.lengths)).astype(np.int32)  # in its text
    angles = gemma.rotary_angles(prefix.length[:, None] + jnp.asarray(offsets)[None], weights.head_dim)
    causal = (task[:, None] == task) & np.tri(layout.tokens, dtype=bool)  # in each text, none between texts
    own = jnp.broadcast_to(jnp.asarray(causal)[None], (len(tokens), *causal.shape))
    before = jnp.broadcast_to(prefix.valid(), (*tokens.shape, prefix.k[0].shape[1]))
    mask = jnp.concatenate([before, own], axis=-1)
    x = pi05.embed_text(weights, tokens)
    for layer, prefix_k, prefix_v in zip(weights.trunk, prefix.k, prefix.v, strict=True):

        def attend(
            q: Array, k: Array, v: Array, prefix_k: Array = prefix_k, prefix_v: Array = prefix_v
        ) -> tuple[Array, None]:
            k, v = jnp.concatenate([prefix_k, k], axis=1), jnp.concatenate([prefix_v, v], axis=1)
            return gemma.attention(q, gemma.KeyValues(k=k, v=v, mask=mask)), None

        x, _ = gemma.trunk_layer(layer, x, angles, attend)
    normed = gemma.rms_norm(x, weights.trunk_norm)
    flat = decode.logits(weights, normed.reshape(-1, normed.shape[-1]))
    return flat.reshape(*tokens.shape, -1)
