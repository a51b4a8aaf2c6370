"""The training step: Muon or AdamW with a cosine schedule, gradient clipping, and a parameter EMA."""

import dataclasses
import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
import optax.contrib

from configs.training import TrainConfig
from oxygen.model.pi05 import Weights
from oxygen.training.batches import Batch
from oxygen.training.losses import Metrics, Objective, map_frozen
from oxygen.typing import Array, Leaf, Params


@flax.struct.dataclass
class TrainState:
    """The training state."""

    step: Leaf  # steps done
    params: Any  # the parameters
    average: Any  # their exponential moving average, which is the policy
    optimiser: Any  # state of the optimiser


def learning_rate_schedule(options: TrainConfig) -> optax.Schedule:
    """Linear warm-up, then cosine decay."""
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=options.learning_rate,
        warmup_steps=min(options.warm_up, options.steps - 1),
        decay_steps=options.steps,
        end_value=options.learning_rate * options.last_rate,
    )


def optimiser(options: TrainConfig) -> optax.GradientTransformation:
    """Gradient clipping, then AdamW; or Muon for hidden matrices and Adam for the rest (arXiv 2502.16982).

    Only matrices decay, not biases, scales and embeddings.
    """
    rate, decay = learning_rate_schedule(options), options.weight_decay
    if options.optimiser == "adamw":
        update = optax.adamw(rate, b1=0.9, b2=0.99, weight_decay=decay, mask=_decaying)
    else:
        update = optax.contrib.muon(
            rate,
            weight_decay=decay,
            weight_decay_mask=_decaying,
            adam_b2=0.99,
            consistent_rms=0.2,
            muon_weight_dimension_numbers=_matrices,
        )
    return optax.chain(optax.clip_by_global_norm(options.clip), update)


_MATRICES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    **{f"llm/layers/attn/{name}_einsum": ((-2,), (-3, -1)) for name in ("q", "kv", "qkv")},
    "llm/layers/attn/attn_vec_einsum": ((-3, -2), (-1,)),
    "llm/layers/mlp": ((-2,), (-1,)),
    "img/Transformer/encoderblock/MlpBlock_0": ((-2,), (-1,)),
    **{f"MultiHeadDotProductAttention_0/{name}": ((-3,), (-2, -1)) for name in ("query", "key", "value")},
    "MultiHeadDotProductAttention_0/out": ((-3, -2), (-1,)),
}
"""Path fragment to the input and output axes of the matrix; leading axes are batch axes such as layers."""


def _matrices(params: Params) -> Params:
    """The axes of every matrix that Muon orthogonalises; None for everything else."""

    def axes(path: Any, leaf: Array) -> optax.contrib.MuonDimensionNumbers | None:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        for part, (inputs, outputs) in _MATRICES.items():
            if part in name and not name.endswith("bias"):
                return optax.contrib.MuonDimensionNumbers(
                    reduction_axis=tuple(leaf.ndim + axis for axis in inputs),
                    output_axis=tuple(leaf.ndim + axis for axis in outputs),
                )
        return None

    return jax.tree_util.tree_map_with_path(axes, params)


def _decaying(params: Params) -> Params:
    without = ("bias", "scale", "embedding")
    return jax.tree_util.tree_map_with_path(lambda path, _: not path[-1].key.endswith(without), params)


def init_state(params: Params, options: TrainConfig) -> TrainState:
    """The initial state. Copies the parameters, since a training step donates its state."""
    copied = jax.tree.map(lambda leaf: jnp.array(leaf, jnp.float32), params)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=copied,
        average=jax.tree.map(jnp.copy, copied),
        optimiser=jax.jit(optimiser(options).init)(copied),
    )


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def train_step(
    objective: Objective, base: Weights | None, state: TrainState, batch: Batch
) -> tuple[TrainState, Metrics]:
    """One training step, of an adapter if there is a `base` model that it is for. The state is donated."""
    options = objective.options
    key = jax.random.fold_in(jax.random.key(options.seed), state.step)
    gradient_of = jax.grad(objective.loss, has_aux=True)
    gradient, metrics = gradient_of(state.params, batch, key, base)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
        update, optimiser_state = optimiser(options).update(gradient, state.optimiser, state.params)
        rate = jnp.asarray(learning_rate_schedule(options)(state.step), jnp.float32)
    if options.texts_only:
        update = map_frozen(update, jnp.zeros_like)
    params = optax.apply_updates(state.params, update)
    done = state.step.astype(jnp.float32)
    # Lower at first: forgets the initial values.
    decay = jnp.minimum(options.ema, (1.0 + done) / (10.0 + done))
    new_state = dataclasses.replace(
        state,
        step=state.step + 1,
        params=params,
        average=jax.tree.map(lambda old, new: old + (new - old) * (1.0 - decay), state.average, params),
        optimiser=optimiser_state,
    )
    return new_state, {**metrics, "gradient_norm": optax.tree.norm(gradient), "learning_rate": rate}
