"""π0.5 as pure functions: prefill an observation, denoise actions.

Images and prompt form the prefix, with full attention among its tokens. The action expert reads the prefix's
keys and values, and so do the texts of language tasks, which follow it causally. Neither changes the prefix:
one prefill serves the actions and any number of texts. Sources: π0.5 (arXiv 2504.16054), openpi's `pi0.py`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from oxygen.model import gemma
from oxygen.model.config import Pi05Config
from oxygen.model.gemma import Copied, Layer, RotaryTables
from oxygen.model.guidance import Guidance, guided
from oxygen.model.params import release_memory, tower
from oxygen.typing import Array, Bool, Float, Float32, Int32, Leaf, Params, UInt8

Actions = Float32[Array, "batch horizon action"]
"""Chunks of actions, noisy or not."""

_ALIGNED = 32  # the denoising KV cache is padded to a multiple of this many positions, for aligned loads


@flax.struct.dataclass
class Weights:
    """Parameters prepared for serving: layers unstacked, cast once, adaRMS vectors precomputed."""

    tower: Params  # SigLIP's parameters, as flax names them
    embedding: Leaf  # the tied embedding, [vocab, width]
    trunk: tuple[Layer, ...]  # the layers that read images and text
    trunk_norm: Leaf  # scale of the trunk's last norm, [width]
    expert: tuple[Layer, ...]  # the action expert's layers
    expert_norm: Leaf  # adaRMS vectors before the action head, [step, 3·width]
    action_in: Params  # projection of actions, `kernel` and `bias`, in float32; action_out: likewise
    action_out: Params
    text_head: Any  # the projection to logits as an `int8.Int8Matrix`; None for the tied embedding
    head_dim: int = flax.struct.field(pytree_node=False)  # channels of an attention head
    stale_slots: Any = None  # `adapter.StaleSlots` that generated tokens see in place of the prompt, if any
    # What logits are rounded to; they are float32 arrays in any case.
    logits_dtype: str = flax.struct.field(pytree_node=False, default="float32")


@flax.struct.dataclass
class Prefix:
    """The prefix KV cache of an observation."""

    k: tuple[Leaf, ...]  # one [batch, position, kv_head, dim] for every layer; v: likewise
    v: tuple[Leaf, ...]
    length: Leaf  # valid positions of each row, [batch]; those after it are padding

    def valid(self) -> Array:
        """Mask of the valid positions, [batch, 1, position]."""
        positions = jnp.arange(self.k[0].shape[1], dtype=jnp.int32)
        return (positions[None] < self.length[:, None])[:, None]


def time_embedding(times: Float32[Array, " step"], width: int) -> Float32[Array, "step width"]:
    """Sines and cosines of flow times in [0, 1], with periods from 0.004 to 4."""
    fraction = jnp.linspace(0.0, 1.0, width // 2, dtype=jnp.float32)
    period = 4e-3 * (4.0 / 4e-3) ** fraction
    angle = times[:, None] / period[None] * (2.0 * jnp.pi)
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def flow_times(steps: int) -> Float32[np.ndarray, " step"]:
    """The times at which the velocity is evaluated, from t = 1 downwards.

    Accumulated in float32 like the reference: the time embedding amplifies an error of 1e-7 to 1e-4.
    """
    backwards = np.full((steps,), -1.0 / steps, np.float32)
    backwards[0] = 1.0
    return np.add.accumulate(backwards, dtype=np.float32)


def prepare(params: Params, config: Pi05Config, times: Float32[Array, " step"] | None = None) -> Weights:
    """Convert openpi's parameter tree (NumPy or JAX arrays) for the programs. Differentiable.

    `times` are the flow times of the steps; those of inference if None.
    """
    return _weights(jax.tree.map(lambda leaf: leaf, dict(params)), config, lambda _: None, times)


def consume(params: dict[str, Any], config: Pi05Config) -> Weights:
    """The same for inference, but frees every array once it is used, which leaves the tree empty.

    Host memory peaks at the tree's size plus one layer of a parameter, for arrays of `params.empty_array`.
    """
    return _weights(params, config, release_memory)


def _weights(
    params: dict[str, Any],
    config: Pi05Config,
    copied: Copied,
    times: Float32[Array, " step"] | None = None,
) -> Weights:
    times = jnp.asarray(flow_times(config.denoise_steps)) if times is None else times
    llm = params["PaliGemma"].pop("llm")
    time_mlp = {name: params.pop(name) for name in ("time_mlp_in", "time_mlp_out")}
    conditions = _conditions(time_mlp, time_embedding(times, config.expert.width))
    weights = Weights(
        embedding=jax.device_put(
            llm.pop("embedder")["input_embedding"].astype(jnp.dtype(config.dtype), copy=False)
        ),
        trunk=gemma.unstacked_layers(llm, config.dtype, copied),
        trunk_norm=llm.pop("final_norm")["scale"],
        expert=gemma.unstacked_layers(llm, config.dtype, copied, conditions),
        expert_norm=gemma.final_modulation(llm, conditions, config.dtype),
        tower=params.pop("PaliGemma")["img"],
        action_in=params.pop("action_in_proj"),
        action_out=params.pop("action_out_proj"),
        text_head=None,
        head_dim=config.trunk.head_dim,
    )
    return jax.device_put(weights)


@jax.jit
def _conditions(time_mlp: Params, times: Float32[Array, "step width"]) -> Float32[Array, "step width"]:
    """The adaRMS conditioning vector of each time."""
    hidden = nn.swish(_dense(time_mlp["time_mlp_in"], times))
    return nn.swish(_dense(time_mlp["time_mlp_out"], hidden))


def _dense(layer: Params, x: Float32[Array, "*batch rows"]) -> Float32[Array, "*batch columns"]:
    bias = layer["bias"].astype(jnp.float32)
    return x @ layer["kernel"].astype(jnp.float32) + bias.reshape((1,) * (x.ndim - 1) + bias.shape)


def embed_text(weights: Weights, tokens: Int32[Array, "batch token"]) -> Float[Array, "batch token width"]:
    """Token embeddings, scaled by the root of the width as Gemma does."""
    embedding = weights.embedding
    return jnp.take(embedding, tokens, axis=0) * jnp.asarray(embedding.shape[1] ** 0.5, embedding.dtype)


def embed_prefix(
    weights: Weights,
    config: Pi05Config,
    images: UInt8[Array, "batch camera side side 3"],
    prompt: Int32[Array, "batch token"],
) -> Float[Array, "batch position width"]:
    """Image tokens, camera by camera, then prompt tokens. All cameras go through the tower at once."""
    batch, cameras = images.shape[:2]
    flat = images.reshape(batch * cameras, *images.shape[2:])
    image_tokens: Any = tower(config).apply({"params": weights.tower}, flat)
    image_tokens = image_tokens.reshape(batch, -1, image_tokens.shape[-1])
    return jnp.concatenate([image_tokens, embed_text(weights, prompt)], axis=1)


def prefill(
    weights: Weights, embedded: Float[Array, "batch position width"], length: Int32[Array, " batch"]
) -> tuple[Prefix, Float[Array, "batch position width"]]:
    """Process a prefix whose first `length` tokens are valid; returns its KV cache and the output."""
    x, _, kept = _through(weights, weights.trunk, embedded, length)
    return _prefix(kept, length), gemma.rms_norm(x, weights.trunk_norm)


def prefill_kv(
    weights: Weights, embedded: Float[Array, "batch position width"], length: Int32[Array, " batch"]
) -> Prefix:
    """The same without the output, which serving does not need: skips most of the last layer."""
    x, angles, kept = _through(weights, weights.trunk[:-1], embedded, length)
    return _prefix([*kept, gemma.keys_and_values(weights.trunk[-1], x, angles)], length)


def _through(
    weights: Weights, layers: Sequence[Layer], x: Array, length: Array
) -> tuple[Array, RotaryTables, list[tuple[Array, Array]]]:
    """Output, rotary tables, and every layer's keys and values of a prefix with full attention."""
    angles = gemma.rotary_table(x.shape[1], weights.head_dim)
    mask = (jnp.arange(x.shape[1], dtype=jnp.int32)[None] < length[:, None])[:, None]

    def attend(q: Array, k: Array, v: Array) -> tuple[Array, tuple[Array, Array]]:
        return gemma.attention(q, k, v, mask), (k, v)

    kept = []
    for layer in layers:
        x, kv = gemma.trunk_layer(layer, x, angles, attend)
        kept.append(kv)
    return x, angles, kept


def _prefix(kept: Sequence[tuple[Array, Array]], length: Array) -> Prefix:
    return Prefix(k=tuple(k for k, _ in kept), v=tuple(v for _, v in kept), length=length)


@flax.struct.dataclass
class CachedLayer:
    """One layer's keys and values: the prefix, then padding, then the action tokens."""

    k: Leaf  # [batch, kv_head, dim, position]
    v: Leaf  # [batch, kv_head, position, dim]

    def attend(
        self,
        q: Float[Array, "batch query head dim"],
        k: Float[Array, "batch query kv_head dim"],
        v: Float[Array, "batch query kv_head dim"],
        mask: Bool[Array, "batch 1 position"],
    ) -> tuple[Float[Array, "batch query head dim"], "CachedLayer"]:
        """Write the action tokens' keys and values into the cache; attend to all that `mask` allows.

        Queries are scaled already.
        """
        before = self.k.shape[-1] - k.shape[1]
        all_k = self.k.at[..., before:].set(k.transpose(0, 2, 3, 1))
        all_v = self.v.at[:, :, before:].set(v.transpose(0, 2, 1, 3))
        heads = gemma.attention_transposed(q, all_k, all_v, mask)
        return heads, CachedLayer(k=all_k, v=all_v)


DenoiseCache = tuple[CachedLayer, ...]
"""The action expert's KV cache, layer by layer."""


def _denoise_cache(prefix: Prefix, width: int) -> DenoiseCache:
    """The prefix with `width` positions after it, of which the action tokens take the last."""

    def begun(k: Array, v: Array) -> CachedLayer:
        k, v = (jnp.pad(leaf.transpose(0, 2, 1, 3), [(0, 0), (0, 0), (0, width), (0, 0)]) for leaf in (k, v))
        return CachedLayer(k=k.transpose(0, 1, 3, 2), v=v)

    return tuple(begun(k, v) for k, v in zip(prefix.k, prefix.v, strict=True))


def denoise(
    weights: Weights,
    prefix: Prefix,
    noise: Actions,
    steps: int,
    guidance: Guidance | None = None,
) -> Actions:
    """Integrate the flow from noise (t = 1) to actions (t = 0) with the prepared number of Euler steps.

    Guidance pulls them towards the actions being executed; it takes a backward pass in each step.
    """
    horizon = noise.shape[1]
    width = horizon + -(prefix.k[0].shape[1] + horizon) % _ALIGNED
    angles, mask = _positions_and_mask(weights, prefix, horizon, width)
    times, cache = jnp.asarray(flow_times(steps)), _denoise_cache(prefix, width)

    def euler(step: Int32[Array, ""], state: tuple[Actions, DenoiseCache]) -> tuple[Array, DenoiseCache]:
        x, cache = state

        def velocity_at(x: Array) -> tuple[Array, DenoiseCache]:
            return _velocity(weights, cache, x, step, angles, mask)

        if guidance is None:
            velocity, cache = velocity_at(x)
        else:
            velocity, cache = guided(velocity_at, x, times[step], guidance)
        return x - velocity / steps, cache

    return jax.lax.fori_loop(0, steps, euler, (noise, cache))[0]


def velocity(weights: Weights, prefix: Prefix, noisy: Actions, step: Int32[Array, ""]) -> Actions:
    """The flow's velocity at one step, for training."""
    horizon = noisy.shape[1]
    angles, mask = _positions_and_mask(weights, prefix, horizon, horizon)
    cache = _denoise_cache(prefix, horizon)
    return _velocity(weights, cache, noisy, step, angles, mask)[0]


def _positions_and_mask(
    weights: Weights, prefix: Prefix, horizon: int, width: int
) -> tuple[RotaryTables, Array]:
    """Rotary tables of the action tokens, and their attention mask: the valid prefix and themselves."""
    positions = prefix.length[:, None] + jnp.arange(horizon, dtype=jnp.int32)[None]
    actions = jnp.broadcast_to(jnp.arange(width) >= width - horizon, (len(prefix.length), 1, width))
    mask = jnp.concatenate([prefix.valid(), actions], axis=-1)
    return gemma.rotary_angles(positions, weights.head_dim), mask


def _velocity(
    weights: Weights,
    cache: DenoiseCache,
    noisy: Actions,
    step: Int32[Array, ""],
    angles: RotaryTables,
    mask: Array,
) -> tuple[Actions, DenoiseCache]:
    """The flow's velocity at the noisy actions, at one denoising step."""
    x = _dense(weights.action_in, noisy).astype(weights.embedding.dtype)
    kept = []
    for layer, held in zip(weights.expert, cache, strict=True):
        attend = functools.partial(held.attend, mask=mask)
        x, longer = gemma.expert_layer(layer.at_step(step), x, angles, attend)
        kept.append(longer)
    modulation = jax.lax.dynamic_index_in_dim(weights.expert_norm, step, keepdims=False)
    normed, _ = gemma.adaptive_rms_norm(x, modulation)
    return _dense(weights.action_out, normed.astype(jnp.float32)), tuple(kept)
