"""Suffix adapters: a LoRA of the trunk that is active for texts alone, in the layout that OxyGen publishes.

A text's own tokens (its prompt, and what is decoded) use the adapted matrices; the prefix and the actions use
the base ones. Sources: OxyGen's release, openpi's `lora.py`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from contracts.errors import UsageError, unknown
from oxygen.model import gemma, params, pi05
from oxygen.model.config import GemmaConfig, Pi05Config
from oxygen.model.gemma import Layer
from oxygen.model.params import Shape
from oxygen.model.pi05 import Prefix, Weights
from oxygen.typing import Array, Float, Float32, Leaf

Mask = Literal["exact", "published"]
"""What a generated token sees of the prefix: its valid tokens, or as many slots from the first one on."""

Arrays = Mapping[str, Float32[np.ndarray, "..."]]
"""An adapter's arrays by the names of its file."""

_BELOW = "PaliGemma/llm/layers/"
_CAMERAS = 3  # cameras in openpi's layout, absent ones included
PROMPT_SLOTS = 100
TEXT_SLOTS = 28
"""Slots that OxyGen's training and serving reserve for the prompt, and for a text with its own prompt."""


def shapes(trunk: GemmaConfig, rank: int) -> dict[str, Shape]:
    """Name to shape of an adapter's arrays."""
    depth, width, dim, mlp = trunk.depth, trunk.width, trunk.head_dim, trunk.mlp_dim
    parts = {"q_einsum": (trunk.num_heads,), "kv_einsum": (2, trunk.num_kv_heads)}
    if trunk.num_kv_heads == trunk.num_heads:
        parts = {"qkv_einsum": (3, trunk.num_heads)}
    projections = {"attn/attn_vec_einsum/lora_": ((trunk.num_heads,), dim, width)}
    projections |= {f"attn/{name}/lora_": (heads, width, dim) for name, heads in parts.items()}
    projections |= {"mlp/gating_einsum_lora_": ((2,), width, mlp), "mlp/linear_lora_": ((), mlp, width)}
    return {
        f"{_BELOW}{name}{side}": shape
        for name, (several, rows, columns) in projections.items()
        for side, shape in {
            "a": (depth, *several, rows, rank),
            "b": (depth, *several, rank, columns),
        }.items()
    }


def rank_of(arrays: Arrays, config: Pi05Config, source: str) -> int:
    """The rank of an adapter; refuses one with a missing, foreign, misshapen or not finite array."""
    narrow = f"{_BELOW}mlp/linear_lora_a"
    shape = arrays[narrow].shape if narrow in arrays else (0,)
    wanted = shapes(config.trunk, max(1, shape[-1] if shape else 0))
    present, of = arrays.keys(), f"an adapter of {config.name}"
    if missing := sorted(wanted.keys() - present):
        raise UsageError(f"{source} is not {of}: {missing[0]} is missing ({len(missing)} of {len(wanted)})")
    if foreign := sorted(present - wanted.keys()):
        raise unknown(f"array of {source}, which is not {of}:", foreign[0], wanted)
    for name, expected in wanted.items():
        if arrays[name].shape != expected:
            raise UsageError(
                f"{source} is not {of}: {name} is {list(arrays[name].shape)}, not {list(expected)}; it has "
                "another rank or belongs to another model"
            )
        if arrays[name].dtype.kind != "f" or not np.isfinite(arrays[name]).all():
            raise UsageError(f"{source}: {name} has values that are not finite numbers; make the file again")
    return wanted[narrow][-1]


def random_arrays(config: Pi05Config, *, rank: int, seed: int) -> dict[str, Float32[np.ndarray, "..."]]:
    """A random adapter that changes texts, for measurements and tests."""
    return {
        name: params.standard_normal(seed, name, shape) / np.float32(np.sqrt(shape[-2]))
        for name, shape in shapes(config.trunk, rank).items()
    }


def initial_arrays(config: Pi05Config, *, rank: int, seed: int) -> dict[str, Float32[np.ndarray, "..."]]:
    """An adapter to start training from: it changes nothing yet, as every second matrix is zero."""
    drawn = random_arrays(config, rank=rank, seed=seed)
    return {name: array if name.endswith("a") else np.zeros_like(array) for name, array in drawn.items()}


@flax.struct.dataclass
class LowRank:
    """A low-rank product per part of a matrix's columns, such as a head."""

    a: Leaf  # [in, part·rank]
    b: Leaf  # [part, rank, out of a part]
    scale: float = flax.struct.field(pytree_node=False)  # factor of the product

    def product(self, x: Float[Array, "*batch rows"]) -> Float[Array, "*batch columns"]:
        """`x` times both matrices, part by part."""
        parts, rank, _ = self.b.shape
        narrow = x @ self.a
        if parts == 1:
            return (narrow @ self.b[0]) * self.scale
        apart = narrow.reshape(*x.shape[:-1], parts, rank)
        return jnp.einsum("...pr,pro->...po", apart, self.b).reshape(*x.shape[:-1], -1) * self.scale


@flax.struct.dataclass
class AdaptedMatrix:
    """A matrix with a low-rank product beside it; takes the place of an array in `x @ matrix`."""

    base: Any
    beside: LowRank

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.base.shape

    def __rmatmul__(self, x: Float[Array, "*batch rows"]) -> Float[Array, "*batch columns"]:
        return x @ self.base + self.beside.product(x)


@flax.struct.dataclass
class StaleSlots:
    """What OxyGen's mask `published` shows to generated tokens in place of the prompt.

    Its cache has slots for three cameras, the padded prompt and the text. A generated token sees the first
    `n` of them, where `n` is the number of valid tokens: with an absent camera, slots of that camera instead
    of the prompt. Their rows attend to every slot alike, text slots (zeros) included.
    """

    tokens: Leaf  # of the absent cameras (black images), then a padding token, embedded, [slot + 1, width]
    image_tokens: int = flax.struct.field(pytree_node=False)  # slots of the cameras that are present
    prompt_slots: int = flax.struct.field(pytree_node=False)

    def in_place_of_prompt(self, weights: Weights, prefix: Prefix) -> Prefix:
        """The prefix's KV cache, with those slots where the prompt's are."""
        present, robots = self.image_tokens, len(prefix.length)
        slots = present + len(self.tokens) - 1 + self.prompt_slots + TEXT_SLOTS
        valid = prefix.valid()[:, 0, :, None, None]
        padding = jnp.maximum(present + self.prompt_slots - prefix.length, 0)[:, None, None].astype(
            jnp.float32
        )
        x = jnp.broadcast_to(self.tokens[None], (robots, *self.tokens.shape))
        last_valid = jnp.full((1, 1), present - 1, jnp.int32)
        angles = gemma.rotary_table(present, weights.head_dim).at(last_valid)
        kept = []
        for layer, prefix_v in zip(weights.trunk, prefix.v, strict=True):

            def attend(q: Array, k: Array, v: Array, prefix_v: Array = prefix_v) -> tuple[Array, Any]:
                values = v.astype(jnp.float32)
                total = jnp.sum(jnp.where(valid, prefix_v.astype(jnp.float32), 0.0), axis=1)
                total = total + jnp.sum(values[:, :-1], axis=1) + padding * values[:, -1]
                mean = (total * jnp.asarray(1 / slots, v.dtype).astype(jnp.float32)).astype(v.dtype)
                heads = jnp.repeat(mean, q.shape[2] // v.shape[2], axis=1)[:, None]
                return jnp.broadcast_to(heads, q.shape), (k, v)

            base = {name: getattr(layer, name).base for name in ("qkv", "out", "gate_up", "down")}
            x, kv = gemma.trunk_layer(dataclasses.replace(layer, **base), x, angles, attend)
            kept.append(kv)
        stale_k, stale_v = (tuple(leaf[:, :-1] for leaf in leaves) for leaves in zip(*kept, strict=True))
        return Prefix(
            k=_inserted(prefix.k, stale_k, present),
            v=_inserted(prefix.v, stale_v, present),
            length=prefix.length,
        )


def _inserted(leaves: tuple[Array, ...], others: tuple[Array, ...], after: int) -> tuple[Array, ...]:
    """The leaves with others after some positions; what exceeds their length is dropped."""
    return tuple(
        jnp.concatenate([leaf[:, :after], other, leaf[:, after:]], axis=1)[:, : leaf.shape[1]]
        for leaf, other in zip(leaves, others, strict=True)
    )


@dataclasses.dataclass(frozen=True)
class Adapter:
    """A suffix adapter on the device."""

    # The low-rank products of every layer, by the names of its matrices.
    layers: tuple[Mapping[str, LowRank], ...]
    # What mask `published` shows in place of the prompt; None if it shows the prompt.
    stale: StaleSlots | None

    def on(self, weights: Weights) -> Weights:
        """The weights for texts; they share all arrays. Logits have the compute type, as in OxyGen."""
        return dataclasses.replace(
            weights,
            trunk=adapted_trunk(weights.trunk, self.layers),
            stale_slots=self.stale,
            logits_dtype=weights.embedding.dtype.name,
        )


def adapted_trunk(trunk: tuple[Layer, ...], layers: tuple[Mapping[str, LowRank], ...]) -> tuple[Layer, ...]:
    """The layers with low-rank products beside their matrices."""
    adapted = []
    for layer, products in zip(trunk, layers, strict=True):
        matrices: Any = {
            name: AdaptedMatrix(getattr(layer, name), beside) for name, beside in products.items()
        }
        adapted.append(dataclasses.replace(layer, **matrices))
    return tuple(adapted)


def low_rank_layers(
    arrays: Mapping[str, Any], trunk: GemmaConfig, *, alpha: float, dtype: str
) -> tuple[Mapping[str, LowRank], ...]:
    """An adapter's arrays for the trunk's matrices, layer by layer. Differentiable.

    The attention's products are scaled by `alpha` over the rank, those of the feed-forward layers by 1. The
    output projection is one product over all heads, whose second matrices are summed.
    """
    flat = {name.removeprefix(_BELOW): array for name, array in arrays.items()}
    scale = alpha / flat["mlp/linear_lora_a"].shape[-1]
    heads = {"attn/q_einsum/lora_", "attn/kv_einsum/lora_", "attn/qkv_einsum/lora_"} & {
        name[:-1] for name in flat
    }

    def layer(number: int) -> dict[str, LowRank]:
        def side(name: str, which: str) -> Any:
            array = flat[f"{name}{which}"][number]
            return array.reshape(-1, *array.shape[-2:])

        def of_parts(a: Any, b: Any, scale: float) -> LowRank:
            a = jnp.asarray(a).transpose(1, 0, 2).reshape(a.shape[1], -1)
            return LowRank(a=a.astype(dtype), b=jnp.asarray(b).astype(dtype), scale=scale)

        qkv_a, qkv_b = (
            jnp.concatenate([side(name, which) for name in sorted(heads, reverse=True)]) for which in "ab"
        )
        out = "attn/attn_vec_einsum/lora_"
        out_a = side(out, "a").reshape(1, -1, side(out, "a").shape[-1])
        gate_up, down = "mlp/gating_einsum_lora_", "mlp/linear_lora_"
        return {
            "qkv": of_parts(qkv_a, qkv_b, scale),
            "out": of_parts(out_a, side(out, "b").sum(axis=0, keepdims=True), scale),
            "gate_up": of_parts(side(gate_up, "a"), side(gate_up, "b"), 1.0),
            "down": of_parts(side(down, "a"), side(down, "b"), 1.0),
        }

    return tuple(layer(number) for number in range(trunk.depth))


def prepare(
    arrays: Arrays,
    config: Pi05Config,
    weights: Weights,
    *,
    alpha: float,
    mask: Mask = "exact",
    prompt_slots: int = PROMPT_SLOTS,
) -> Adapter:
    """An adapter for the programs, of arrays that `rank_of` has checked.

    `alpha` is the scale of the attention's products, times the rank; `prompt_slots` are those of the prompt
    where the adapter was trained, for mask `published`.
    """
    layers = low_rank_layers(arrays, config.trunk, alpha=alpha, dtype=config.dtype)
    stale = None
    if mask == "published" and len(config.cameras) < _CAMERAS:
        black = jnp.zeros((1, 1, config.image_size, config.image_size, 3), jnp.uint8)
        embed = jax.jit(pi05.embed_prefix, static_argnames="config")
        camera = embed(weights, config, black, jnp.zeros((1, 1), jnp.int32))[0]  # and token 0, the padding
        absent = _CAMERAS - len(config.cameras)
        stale = StaleSlots(
            tokens=jnp.concatenate([camera[:-1]] * absent + [camera[-1:]]),
            image_tokens=config.image_tokens,
            prompt_slots=prompt_slots,
        )
    return Adapter(layers, stale)
