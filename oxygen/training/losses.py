"""What training makes small: the error of the flow's velocity, and the surprise at what was said."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from oxygen.model import pi05
from oxygen.model.config import Pi05Config
from oxygen.model.pi05 import Prefix
from oxygen.training.augmentation import augment
from oxygen.training.forward import TextLayout, read_prefix, text_scores, velocities
from oxygen.training.freezing import held
from oxygen.training.lessons import Batch
from oxygen.training.recipe import Recipe
from oxygen.typing import Array, Float32, Params

Metrics = Mapping[str, Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """The loss of a batch: flow matching and cross-entropy over one prefix.

    Attributes:
        model: The model's sizes.
        recipe: Weights of the losses, augmentation, draws.
        tasks: The language tasks, in the order their texts lie.
        layout: Where the texts lie.
    """

    model: Pi05Config
    recipe: Recipe
    tasks: tuple[str, ...]
    layout: TextLayout

    def loss(self, params: Params, batch: Batch, key: Array) -> tuple[Float32[Array, ""], Metrics]:
        """The loss, and what it is made of. All randomness is a function of the key."""
        if self.recipe.texts_only:
            return self._loss_of_texts(held(params), batch, key)
        varying, timing, noising = jax.random.split(key, 3)
        images = augment(varying, batch.images, self.recipe)
        times = draw_times(timing, (len(images), self.recipe.draws))
        noise = jax.random.normal(noising, (*times.shape, *batch.actions.shape[1:]), jnp.float32)
        weights = pi05.weights_at(params, self.model, times.reshape(-1))
        prefix = read_prefix(weights, self.model, images, batch.prompt, batch.length)
        seen_by_actions = prefix if self.recipe.actions_reach_prefix else jax.lax.stop_gradient(prefix)
        at = times[..., None, None]
        actions = batch.actions[:, None]
        flowing = velocities(weights, seen_by_actions, at * noise + (1.0 - at) * actions)
        flow = flow_loss(flowing, noise - actions, batch)
        said, spoken = self._said(weights, prefix, batch)
        return flow + said, {"loss": flow + said, "flow_loss": flow, **spoken}

    def _loss_of_texts(self, params: Params, batch: Batch, key: Array) -> tuple[Float32[Array, ""], Metrics]:
        images = augment(key, batch.images, self.recipe)
        weights = pi05.weights_at(params, self.model, jnp.ones(1))
        prefix = read_prefix(weights, self.model, images, batch.prompt, batch.length)
        said, spoken = self._said(weights, prefix, batch)
        return said, {"loss": said, **spoken}

    def _said(
        self, weights: pi05.Weights, prefix: Prefix, batch: Batch
    ) -> tuple[Float32[Array, ""], Metrics]:
        """What the texts add to the loss, and how each task fares."""
        spoken = self._spoken(self._scores(weights, prefix, batch), batch) if self.tasks else {}
        losses = (spoken[f"{task}_loss"] for task in self.tasks)
        return self.recipe.text_weight * sum(losses, start=jnp.zeros(())), spoken

    def _scores(
        self, weights: pi05.Weights, prefix: Prefix, batch: Batch
    ) -> Float32[Array, "row token vocab"]:
        rows = len(batch.tokens)
        seen = jax.tree.map(lambda leaf: leaf[:rows], prefix)
        if not self.recipe.texts_reach_prefix:
            seen = jax.lax.stop_gradient(seen)
        return text_scores(weights, seen, batch.tokens, self.layout)

    def _spoken(self, scores: Float32[Array, "row token vocab"], batch: Batch) -> Metrics:
        metrics: dict[str, Array] = {}
        start = 0
        for task, length in zip(self.tasks, self.layout.lengths, strict=True):
            here = slice(start, start + length)
            metrics |= {
                f"{task}_{name}": value
                for name, value in text_loss(
                    scores[:, here], batch.following[:, here], batch.graded[:, here]
                ).items()
            }
            start += length
        return metrics


def draw_times(key: Array, shape: tuple[int, ...]) -> Float32[Array, "..."]:
    """Flow times in (0.001, 1], from Beta(1.5, 1) as π0.5 has them: rather near the noise, at t = 1."""
    uniform = jax.random.uniform(key, shape, jnp.float32)
    return uniform ** (1.0 / 1.5) * 0.999 + 0.001  # the inverse of the distribution's t^1.5


def flow_loss(
    velocity: Float32[Array, "batch draw horizon action"],
    wanted: Float32[Array, "batch draw horizon action"],
    batch: Batch,
) -> Float32[Array, ""]:
    """Mean square error over all draws and channels of the actions that lie within the episode."""
    valid = batch.valid.astype(jnp.float32)
    of_step = jnp.mean(jnp.square(velocity - wanted), axis=(1, 3))
    return jnp.sum(of_step * valid) / jnp.maximum(jnp.sum(valid), 1.0)


def text_loss(
    scores: Float32[Array, "row token vocab"], following: Array, graded: Array
) -> dict[str, Float32[Array, ""]]:
    """Cross-entropy in nats, and the share of tokens that greedy decoding gets right, over graded tokens."""
    right = jnp.take_along_axis(scores, following[..., None], axis=-1)[..., 0]
    surprise = jax.nn.logsumexp(scores, axis=-1) - right
    weight = graded.astype(jnp.float32)
    count = jnp.maximum(jnp.sum(weight), 1.0)
    hit = (jnp.argmax(scores, axis=-1) == following).astype(jnp.float32)
    return {"loss": jnp.sum(surprise * weight) / count, "accuracy": jnp.sum(hit * weight) / count}
