"""The served model as a function of its parameters, differentiable: one prefix, actions and texts read it.

Nothing here is a second model. The prefix is `pi05.prefill`, the flow `pi05.velocity`; what differs is that
every draw of the flow has a time of its own, and that the tokens of a text are read at once, not one by one.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from oxygen.model import gemma, pi05, rotary
from oxygen.model.config import Pi05Config
from oxygen.model.pi05 import Prefix, Weights
from oxygen.serving import decode
from oxygen.typing import Array, Bool, Float32, Int32, UInt8


@dataclasses.dataclass(frozen=True)
class TextLayout:
    """Where the texts of a sample lie side by side: each language task has its own stretch of tokens.

    Attributes:
        lengths: Tokens of each task's stretch.
    """

    lengths: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens of all stretches together."""
        return sum(self.lengths)

    @property
    def offsets(self) -> Int32[np.ndarray, " token"]:
        """Each token's place in its own text, which begins where the prefix ends."""
        return np.concatenate([np.arange(length, dtype=np.int32) for length in (*self.lengths, 0)])

    @property
    def mask(self) -> Bool[np.ndarray, "token token"]:
        """Which tokens each may see: those of its own text up to itself."""
        task = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return (task[:, None] == task) & np.tri(self.tokens, dtype=bool)


def read_prefix(
    weights: Weights,
    config: Pi05Config,
    images: UInt8[Array, "batch camera side side 3"],
    prompt: Int32[Array, "batch token"],
    length: Int32[Array, " batch"],
) -> Prefix:
    """Read observations, whose prompts have `length` tokens each."""
    embedded = pi05.embed_prefix(weights, config, images, prompt)
    return pi05.prefill(weights, embedded, length + config.image_tokens)[0]


def velocities(
    weights: Weights, prefix: Prefix, noisy: Float32[Array, "batch draw horizon action"]
) -> Float32[Array, "batch draw horizon action"]:
    """The flow's velocity for several draws of every sample.

    Args:
        weights: Made by `pi05.weights_at` for the times of the draws, sample by sample.
        prefix: What the samples' observations left.
        noisy: The actions on their way.
    """
    batch, draws = noisy.shape[:2]

    def of_draw(seen: Prefix, actions: Array, step: Array) -> Array:
        alone = jax.tree.map(lambda leaf: leaf[None], seen)
        return pi05.velocity(weights, alone, actions[None], step)[0]

    of_sample = jax.vmap(of_draw, in_axes=(None, 0, 0))
    steps = jnp.arange(batch * draws, dtype=jnp.int32).reshape(batch, draws)
    return jax.vmap(of_sample)(prefix, noisy, steps)


def text_scores(
    weights: Weights, prefix: Prefix, tokens: Int32[Array, "batch token"], layout: TextLayout
) -> Float32[Array, "batch token vocab"]:
    """The scores of the token that follows each token of the texts, all of which follow the same prefix."""
    positions = prefix.length[:, None] + jnp.asarray(layout.offsets)[None]
    by = rotary.turns(positions, weights.head_dim)
    own = jnp.broadcast_to(jnp.asarray(layout.mask)[None], (len(tokens), layout.tokens, layout.tokens))
    seen = jnp.broadcast_to(prefix.valid(), (*tokens.shape, prefix.k[0].shape[1]))
    mask = jnp.concatenate([seen, own], axis=-1)
    x = pi05.embed_text(weights, tokens)
    for layer, prefix_k, prefix_v in zip(weights.trunk, prefix.k, prefix.v, strict=True):

        def attend(
            q: Array, k: Array, v: Array, prefix_k: Array = prefix_k, prefix_v: Array = prefix_v
        ) -> tuple[Array, None]:
            k, v = jnp.concatenate([prefix_k, k], axis=1), jnp.concatenate([prefix_v, v], axis=1)
            return gemma.attention(q, gemma.Keys(k=k, v=v, mask=mask)), None

        x, _ = gemma.trunk_layer(layer, x, by, attend)
    normed = gemma.rms_norm(x, weights.trunk_norm)
    scores = decode.logits(weights, normed.reshape(-1, normed.shape[-1]))
    return scores.reshape(*tokens.shape, -1)
