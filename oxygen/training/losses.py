"""The losses of training, flow matching for actions and cross-entropy for texts, and their forward pass.

One prefill of the served model is read by actions and texts. Unlike serving, every flow sample has its own
time, and all tokens of a text are processed in parallel.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from configs.training import TrainConfig
from oxygen.model import gemma, pi05
from oxygen.model.adapter import adapted_trunk, low_rank_layers
from oxygen.model.config import Pi05Config
from oxygen.model.pi05 import Prefix, Weights
from oxygen.serving import decode
from oxygen.training.batches import Batch, TextLayout
from oxygen.typing import Array, Float32, Int32, Params, UInt8

Metrics = Mapping[str, Array]

_LAST_LAYER_TRAINABLE = {
    *(f"PaliGemma/llm/layers/attn/{name}/w" for name in ("q_einsum", "attn_vec_einsum")),
    *(f"PaliGemma/llm/layers/{name}" for name in ("pre_ffw_norm/scale", "mlp/gating_einsum", "mlp/linear")),
}
_TRAINABLE = "PaliGemma/llm/final_norm/scale"  # not the tied embedding, through which instructions are read


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """The loss of a batch: flow matching and cross-entropy over a shared prefill."""

    model: Pi05Config
    options: TrainConfig
    layout: TextLayout

    def loss(
        self, params: Params, batch: Batch, key: Array, base: Weights | None = None
    ) -> tuple[Float32[Array, ""], Metrics]:
        """The total loss, and its parts as metrics. All randomness is a function of the key.

        What is trained are the policy's parameters, or those of an adapter for `base`.
        """
        if not self.options.trains_actions:
            return self._text_only_loss(params, base, batch, key)
        augment_key, time_key, noise_key = jax.random.split(key, 3)
        images = augment(augment_key, batch.images, self.options)
        times = sample_flow_times(time_key, (len(images), self.options.draws))
        noise = jax.random.normal(noise_key, (*times.shape, *batch.actions.shape[1:]), jnp.float32)
        weights = pi05.prepare(params, self.model, times.reshape(-1))
        prefix = prefill_observations(weights, self.model, images, batch.prompt, batch.length)
        action_prefix = prefix if self.options.actions_reach_prefix else jax.lax.stop_gradient(prefix)
        t = times[..., None, None]
        actions = batch.actions[:, None]
        predicted = velocities(weights, action_prefix, t * noise + (1.0 - t) * actions)
        flow = flow_loss(predicted, noise - actions, batch)
        text, metrics = self._text_loss(weights, prefix, batch)
        return flow + text, {"loss": flow + text, "flow_loss": flow, **metrics}

    def _text_only_loss(
        self, params: Params, base: Weights | None, batch: Batch, key: Array
    ) -> tuple[Float32[Array, ""], Metrics]:
        """The texts' loss. With an adapter, a text's own tokens go through it and the prefix does not."""
        images = augment(key, batch.images, self.options)
        weights = base or pi05.prepare(map_frozen(params, jax.lax.stop_gradient), self.model, jnp.ones(1))
        prefix = prefill_observations(weights, self.model, images, batch.prompt, batch.length)
        if base is not None:
            arrays = flax.traverse_util.flatten_dict(dict(params), sep="/")
            rank = float(self.options.adapter or 0)
            layers = low_rank_layers(arrays, self.model.trunk, alpha=rank, dtype=self.model.dtype)
            weights = dataclasses.replace(base, trunk=adapted_trunk(base.trunk, layers))
            prefix = jax.lax.stop_gradient(prefix)
        text, metrics = self._text_loss(weights, prefix, batch)
        return text, {"loss": text, **metrics}

    def _text_loss(
        self, weights: Weights, prefix: Prefix, batch: Batch
    ) -> tuple[Float32[Array, ""], Metrics]:
        """The weighted loss of all texts, and each task's metrics."""
        total, metrics = jnp.zeros(()), {}
        if not self.layout.tasks:
            return total, metrics
        text_prefix = jax.tree.map(lambda leaf: leaf[: len(batch.text_tokens)], prefix)
        if not self.options.texts_reach_prefix:
            text_prefix = jax.lax.stop_gradient(text_prefix)
        logits = text_logits(weights, text_prefix, batch.text_tokens, self.layout)
        targets, mask = batch.text_targets, batch.text_mask
        for task, tokens in self.layout.ranges.items():
            of_task = text_loss(logits[:, tokens], targets[:, tokens], mask[:, tokens])
            metrics |= {f"{task}_{name}": value for name, value in of_task.items()}
            total = total + of_task["loss"]
        return self.options.text_weight * total, metrics


def augment(
    key: Array, images: UInt8[Array, "batch camera side side 3"], options: TrainConfig
) -> UInt8[Array, "batch camera side side 3"]:
    """Augment every image independently, as a function of the key and its index in the batch.

    Shifts by whole pixels, replicating the border, then changes saturation, contrast and brightness.
    """

    def shift(image: Array, pixels: Array) -> Array:
        index = jnp.arange(image.shape[0], dtype=jnp.int32)
        rows, columns = (jnp.clip(index + pixels[axis], 0, image.shape[axis] - 1) for axis in (0, 1))
        return image[rows][:, columns]

    def jitter_color(image: Array, amounts: Array) -> Array:
        brightness, contrast, saturation = amounts
        pixels = image.astype(jnp.float32)
        grey = jnp.mean(pixels, axis=-1, keepdims=True)
        pixels = grey + (pixels - grey) * (1.0 + saturation)
        mean = jnp.mean(grey)
        pixels = mean + (pixels - mean) * (1.0 + contrast) + 255.0 * brightness
        return jnp.clip(jnp.round(pixels), 0.0, 255.0).astype(jnp.uint8)

    shift_key, color_key = jax.random.split(key)
    flat = images.reshape(-1, *images.shape[2:])
    max_shift = round(options.image_shift * images.shape[2])
    if max_shift:
        shifts = jax.random.randint(shift_key, (len(flat), 2), -max_shift, max_shift + 1)
        flat = jax.vmap(shift)(flat, shifts)
    if options.brightness or options.contrast or options.saturation:
        limits = jnp.asarray([options.brightness, options.contrast, options.saturation], jnp.float32)
        amounts = jax.random.uniform(color_key, (len(flat), 3), jnp.float32, -1.0, 1.0) * limits[None]
        flat = jax.vmap(jitter_color)(flat, amounts)
    return flat.reshape(images.shape)


def map_frozen(params: Params, function: Callable[[Array], Array]) -> Params:
    """Apply a function to all parameters, or layers of them, that actions depend on.

    The action expert reads the trunk through each layer's keys and values. What does not contribute to them
    (the last layer's query matrix, where it is separate, output projection and MLP, and the final norm)
    affects only texts. Training these alone leaves the actions the same to the bit.
    """

    def mapped(path: Any, leaf: Array) -> Array:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name == _TRAINABLE:
            return leaf
        if name in _LAST_LAYER_TRAINABLE:
            return jnp.concatenate([function(leaf[:-1]), leaf[-1:]])
        return function(leaf)

    tree: Any = jax.tree_util.tree_map_with_path(mapped, params)
    return dict(tree)


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
    """The flow's velocity at several interpolations between noise and actions of every sample.

    The weights are prepared for the flattened times [batch * draw].
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
    starts = [text.start for text in layout.ranges.values()]
    offsets = (np.arange(layout.tokens) - np.repeat(starts, layout.lengths)).astype(np.int32)  # in its text
    angles = gemma.rotary_angles(prefix.length[:, None] + jnp.asarray(offsets)[None], weights.head_dim)
    causal = (task[:, None] == task) & np.tri(layout.tokens, dtype=bool)  # in each text, none between texts
    texts = jnp.broadcast_to(jnp.asarray(causal)[None], (len(tokens), *causal.shape))
    before = jnp.broadcast_to(prefix.valid(), (*tokens.shape, prefix.k[0].shape[1]))
    mask = jnp.concatenate([before, texts], axis=-1)
    x = pi05.embed_text(weights, tokens)
    for layer, prefix_k, prefix_v in zip(weights.trunk, prefix.k, prefix.v, strict=True):

        def attend(
            q: Array, k: Array, v: Array, prefix_k: Array = prefix_k, prefix_v: Array = prefix_v
        ) -> tuple[Array, None]:
            k, v = jnp.concatenate([prefix_k, k], axis=1), jnp.concatenate([prefix_v, v], axis=1)
            return gemma.attention(q, k, v, mask), None

        x, _ = gemma.trunk_layer(layer, x, angles, attend)
    normed = gemma.rms_norm(x, weights.trunk_norm)
    flat = decode.logits(weights, normed.reshape(-1, normed.shape[-1]))
    return flat.reshape(*tokens.shape, -1)


def sample_flow_times(key: Array, shape: tuple[int, ...]) -> Float32[Array, "..."]:
    """Flow times in (0.001, 1] from Beta(1.5, 1), as in π0.5: denser near the noise at t = 1."""
    uniform = jax.random.uniform(key, shape, jnp.float32)
    return uniform ** (1.0 / 1.5) * 0.999 + 0.001  # inverse CDF


def flow_loss(
    velocity: Float32[Array, "batch draw horizon action"],
    target: Float32[Array, "batch draw horizon action"],
    batch: Batch,
) -> Float32[Array, ""]:
    """Mean squared error over the draws and channels of valid actions."""
    valid = batch.valid.astype(jnp.float32)
    of_step = jnp.mean(jnp.square(velocity - target), axis=(1, 3))
    return jnp.sum(of_step * valid) / jnp.maximum(jnp.sum(valid), 1.0)


def text_loss(
    logits: Float32[Array, "row token vocab"], targets: Array, mask: Array
) -> dict[str, Float32[Array, ""]]:
    """Mean cross-entropy (nats) and greedy accuracy over the masked-in tokens."""
    target_logits = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    cross_entropy = jax.nn.logsumexp(logits, axis=-1) - target_logits
    weight = mask.astype(jnp.float32)
    count = jnp.maximum(jnp.sum(weight), 1.0)
    correct = (jnp.argmax(logits, axis=-1) == targets).astype(jnp.float32)
    return {"loss": jnp.sum(cross_entropy * weight) / count, "accuracy": jnp.sum(correct * weight) / count}
