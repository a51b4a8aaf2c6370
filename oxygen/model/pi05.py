"""π0.5 as pure functions: prefill an observation, denoise actions from it, write text after it.

Images and prompt form the prefix, whose tokens see each other fully. The action expert reads its keys and
values; so does the text of a language task, which follows it causally. Neither changes the prefix, so one
serves the actions and any number of texts. Sources: π0.5 (arXiv 2504.16054), openpi's `pi0.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from oxygen.model import gemma, rotary
from oxygen.model.config import Pi05Config
from oxygen.model.guidance import Guidance, guided
from oxygen.model.params import tower
from oxygen.typing import Array, Float, Float32, Int32, Leaf, Params, UInt8

_ALIGNED = 32
"""Positions that a denoising step attends to come in these: rows of keys then begin where processors load."""


@flax.struct.dataclass
class Weights:
    """A policy's parameters as the programs want them: layers apart, cast once, adaRMS vectors worked out.

    Attributes:
        tower: SigLIP's parameters, as flax names them.
        embedding: The tied embedding, [vocab, width].
        trunk: The layers that read images and text.
        trunk_norm: Scale of the trunk's last norm, [width].
        expert: The action expert's layers.
        expert_norm: adaRMS vectors before the action head, [step, 3·width].
        action_in, action_out: Projections of actions, `kernel` and `bias`, in float32.
        head_dim: Channels of an attention head.
    """

    tower: Params
    embedding: Leaf
    trunk: tuple[gemma.Layer, ...]
    trunk_norm: Leaf
    expert: tuple[gemma.Layer, ...]
    expert_norm: Leaf
    action_in: Params
    action_out: Params
    head_dim: int = flax.struct.field(pytree_node=False)


@flax.struct.dataclass
class Prefix:
    """What is kept of an observation; written by `prefill`, read by everything else.

    Attributes:
        k: One [batch, position, kv_head, dim] for every layer; v: likewise.
        length: Valid positions of each row, [batch]; those after it are padding.
    """

    k: tuple[Leaf, ...]
    v: tuple[Leaf, ...]
    length: Leaf

    def valid(self) -> Array:
        """Which positions hold something, [batch, 1, position]."""
        positions = jnp.arange(self.k[0].shape[1], dtype=jnp.int32)
        return (positions[None] < self.length[:, None])[:, None]


def time_embedding(times: Float32[Array, " step"], width: int) -> Float32[Array, "step width"]:
    """Sines and cosines of flow times in [0, 1], with periods from 0.004 to 4."""
    fraction = jnp.linspace(0.0, 1.0, width // 2, dtype=jnp.float32)
    period = 4e-3 * (4.0 / 4e-3) ** fraction
    angle = times[:, None] / period[None] * (2.0 * jnp.pi)
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def flow_times(steps: int) -> Float32[np.ndarray, " step"]:
    """The times at which the velocity is asked for, from t = 1 downwards.

    Added up in float32, as the reference does: the time embedding turns an error of 1e-7 into one of 1e-4.
    """
    backwards = np.full((steps,), -1.0 / steps, np.float32)
    backwards[0] = 1.0
    return np.add.accumulate(backwards, dtype=np.float32)


def prepare(params: Params, config: Pi05Config) -> Weights:
    """Turn openpi's parameter tree, of NumPy's arrays or JAX's, into what the programs read. Done at load."""
    return consume(_opened(params), config)


def consume(params: dict[str, Any], config: Pi05Config) -> Weights:
    """The same, but takes every array out of the tree as it is used; the tree is left empty.

    So memory peaks at the tree's size and one parameter, as long as nobody else holds its arrays.
    """
    return _weights(params, config, jnp.asarray(flow_times(config.denoise_steps)))


def weights_at(params: Params, config: Pi05Config, times: Float32[Array, " step"]) -> Weights:
    """What `prepare` makes, for flow times of one's own: step `n` is then `times[n]`. Differentiable."""
    return _weights(_opened(params), config, times)


def _weights(params: dict[str, Any], config: Pi05Config, times: Float32[Array, " step"]) -> Weights:
    llm = params["PaliGemma"].pop("llm")
    time_mlp = {name: params.pop(name) for name in ("time_mlp_in", "time_mlp_out")}
    conditions = _conditions(time_mlp, time_embedding(times, config.expert.width))
    weights = Weights(
        embedding=jax.device_put(
            llm.pop("embedder")["input_embedding"].astype(jnp.dtype(config.dtype), copy=False)
        ),
        trunk=gemma.trunk_layers(llm, config.dtype),
        trunk_norm=llm.pop("final_norm")["scale"],
        expert=gemma.expert_layers(llm, conditions, config.dtype),
        expert_norm=gemma.final_modulation(llm, conditions, config.dtype),
        tower=params.pop("PaliGemma")["img"],
        action_in=params.pop("action_in_proj"),
        action_out=params.pop("action_out_proj"),
        head_dim=config.trunk.head_dim,
    )
    return jax.device_put(weights)


def _opened(tree: Params) -> dict[str, Any]:
    """The same arrays in dictionaries of our own."""
    return {key: _opened(value) if isinstance(value, Mapping) else value for key, value in tree.items()}


@jax.jit
def _conditions(time_mlp: Params, times: Float32[Array, "step width"]) -> Float32[Array, "step width"]:
    """What the adaRMS norms are told of each step's time."""
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
    seen: Any = tower(config).apply({"params": weights.tower}, flat)
    seen = seen.reshape(batch, -1, seen.shape[-1])
    return jnp.concatenate([seen, embed_text(weights, prompt)], axis=1)


def prefill(
    weights: Weights, embedded: Float[Array, "batch position width"], length: Int32[Array, " batch"]
) -> tuple[Prefix, Float[Array, "batch position width"]]:
    """Read a prefix of which the first `length` tokens count; returns what to keep, and the output."""
    x, _, kept = _through(weights, weights.trunk, embedded, length)
    return _prefix(kept, length), gemma.rms_norm(x, weights.trunk_norm)


def read(
    weights: Weights, embedded: Float[Array, "batch position width"], length: Int32[Array, " batch"]
) -> Prefix:
    """The same without the output, which a policy has no use for: the last layer is its keys and values."""
    x, by, kept = _through(weights, weights.trunk[:-1], embedded, length)
    return _prefix([*kept, gemma.keys_and_values(weights.trunk[-1], x, by)], length)


def _through(
    weights: Weights, layers: Sequence[gemma.Layer], x: Array, length: Array
) -> tuple[Array, rotary.Turns, list[tuple[Array, Array]]]:
    """Output, angles, and every layer's keys and values of a prefix that sees itself fully."""
    by = rotary.table(x.shape[1], weights.head_dim)
    mask = (jnp.arange(x.shape[1], dtype=jnp.int32)[None] < length[:, None])[:, None]

    def attend(q: Array, k: Array, v: Array) -> tuple[Array, tuple[Array, Array]]:
        return gemma.attention(q, gemma.Keys(k=k, v=v, mask=mask)), (k, v)

    kept = []
    for layer in layers:
        x, kv = gemma.trunk_layer(layer, x, by, attend)
        kept.append(kv)
    return x, by, kept


def _prefix(kept: Sequence[tuple[Array, Array]], length: Array) -> Prefix:
    return Prefix(k=tuple(k for k, _ in kept), v=tuple(v for _, v in kept), length=length)


@flax.struct.dataclass
class Stage:
    """What the action expert's tokens attend to: per layer the prefix, then room whose end is their own.

    Attributes:
        k: One [batch, kv_head, dim, position + room] for every layer, the way round that products read it.
        v: One [batch, kv_head, position + room, dim].
    """

    k: tuple[Leaf, ...]
    v: tuple[Leaf, ...]


def _stage(prefix: Prefix, room: int) -> Stage:
    def with_room(leaf: Array) -> Array:
        return jnp.pad(leaf.transpose(0, 2, 1, 3), ((0, 0), (0, 0), (0, room), (0, 0)))

    return Stage(
        k=tuple(with_room(k).transpose(0, 1, 3, 2) for k in prefix.k), v=tuple(map(with_room, prefix.v))
    )


def denoise(
    weights: Weights,
    prefix: Prefix,
    noise: Float32[Array, "batch horizon action"],
    steps: int,
    guidance: Guidance | None = None,
) -> Float32[Array, "batch horizon action"]:
    """Follow the flow from noise (t = 1) to actions (t = 0) in as many Euler steps as were prepared.

    With `guidance`, they are pulled towards the actions under way, which takes a backward pass in each step.
    """
    horizon = noise.shape[1]
    room = horizon + -(prefix.k[0].shape[1] + horizon) % _ALIGNED
    by, mask = _surroundings(weights, prefix, horizon, room)
    times = jnp.asarray(flow_times(steps))

    def euler(
        step: Int32[Array, ""], state: tuple[Float32[Array, "batch horizon action"], Stage]
    ) -> tuple[Array, Stage]:
        x, stage = state

        def velocity_at(x: Array) -> tuple[Array, Stage]:
            return _velocity(weights, stage, (x, step), by, mask)

        if guidance is None:
            velocity, stage = velocity_at(x)
        else:
            velocity, stage = guided(velocity_at, x, times[step], guidance)
        return x - velocity / steps, stage

    return jax.lax.fori_loop(0, steps, euler, (noise, _stage(prefix, room)))[0]


def velocity(
    weights: Weights, prefix: Prefix, noisy: Float32[Array, "batch horizon action"], step: Int32[Array, ""]
) -> Float32[Array, "batch horizon action"]:
    """The flow's velocity at one step by itself, which is what training asks for."""
    horizon = noisy.shape[1]
    by, mask = _surroundings(weights, prefix, horizon, horizon)
    return _velocity(weights, _stage(prefix, horizon), (noisy, step), by, mask)[0]


def _surroundings(weights: Weights, prefix: Prefix, horizon: int, room: int) -> tuple[rotary.Turns, Array]:
    """The angles of the actions' positions, and which positions they see: the prefix's and their own."""
    positions = prefix.length[:, None] + jnp.arange(horizon, dtype=jnp.int32)[None]
    own = jnp.broadcast_to(jnp.arange(room) >= room - horizon, (len(prefix.length), 1, room))
    mask = jnp.concatenate([prefix.valid(), own], axis=-1)
    return rotary.turns(positions, weights.head_dim), mask


def _velocity(
    weights: Weights,
    stage: Stage,
    at: tuple[Float32[Array, "batch horizon action"], Int32[Array, ""]],
    by: rotary.Turns,
    mask: Array,
) -> tuple[Float32[Array, "batch horizon action"], Stage]:
    """The flow's velocity where the actions are, at one of the denoising steps."""
    noisy, step = at
    x = _dense(weights.action_in, noisy).astype(weights.embedding.dtype)
    before = stage.k[0].shape[-1] - noisy.shape[1]
    ks, vs = [], []
    for layer, all_k, all_v in zip(weights.expert, stage.k, stage.v, strict=True):

        def attend(
            q: Array, k: Array, v: Array, all_k: Array = all_k, all_v: Array = all_v
        ) -> tuple[Array, tuple[Array, Array]]:
            all_k = all_k.at[..., before:].set(k.transpose(0, 2, 3, 1))
            all_v = all_v.at[:, :, before:].set(v.transpose(0, 2, 1, 3))
            return gemma.attention_turned(q, all_k, all_v, mask), (all_k, all_v)

        x, (k, v) = gemma.expert_layer(layer.at_step(step), x, by, attend)
        ks.append(k)
        vs.append(v)
    modulation = jax.lax.dynamic_index_in_dim(weights.expert_norm, step, keepdims=False)
    normed, _ = gemma.adaptive_rms_norm(x, modulation)
    return _dense(weights.action_out, normed.astype(jnp.float32)), Stage(k=tuple(ks), v=tuple(vs))
