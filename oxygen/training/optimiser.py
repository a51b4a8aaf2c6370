"""One step of training: Muon or AdamW along a cosine, gradients clipped, an average of parameters kept."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import flax.traverse_util
import jax
import jax.numpy as jnp
import optax
import optax.contrib

from oxygen.training.freezing import changing_texts_alone
from oxygen.training.lessons import Batch
from oxygen.training.losses import Metrics, Objective
from oxygen.training.recipe import Recipe
from oxygen.typing import Array, Leaf, Params


@flax.struct.dataclass
class TrainState:
    """Everything that a step changes.

    Attributes:
        step: Steps done.
        params: The parameters.
        average: Their exponential moving average, which is what will be served.
        optimiser: The moments and counters of Muon and AdamW.
    """

    step: Leaf
    params: Any
    average: Any
    optimiser: Any


Step = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def rate_at(recipe: Recipe) -> optax.Schedule:
    """The learning rate of every step."""
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=recipe.learning_rate,
        warmup_steps=min(recipe.warm_up, recipe.steps - 1),
        decay_steps=recipe.steps,
        end_value=recipe.learning_rate * recipe.last_rate,
    )


def optimiser(recipe: Recipe) -> optax.GradientTransformation:
    """The recipe's optimiser, with the gradient clipped before it."""
    return optax.chain(optax.clip_by_global_norm(recipe.clip), _OPTIMISERS[recipe.optimiser](recipe))


def _adamw(recipe: Recipe) -> optax.GradientTransformation:
    """Only matrices decay, not biases, scales and embeddings."""
    return optax.adamw(rate_at(recipe), b1=0.9, b2=0.99, weight_decay=recipe.weight_decay, mask=_decaying)


def _muon(recipe: Recipe) -> optax.GradientTransformation:
    """Muon for the matrices between tokens, which decay, and Adam for the rest (arXiv 2502.16982)."""
    return optax.contrib.muon(
        rate_at(recipe),
        weight_decay=recipe.weight_decay,
        weight_decay_mask=_decaying,
        adam_b2=0.99,
        consistent_rms=0.2,
        muon_weight_dimension_numbers=_matrices,
    )


_OPTIMISERS = {"adamw": _adamw, "muon": _muon}


_MATRICES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "llm/layers/attn/q_einsum": ((-2,), (-3, -1)),
    "llm/layers/attn/kv_einsum": ((-2,), (-3, -1)),
    "llm/layers/attn/qkv_einsum": ((-2,), (-3, -1)),
    "llm/layers/attn/attn_vec_einsum": ((-3, -2), (-1,)),
    "llm/layers/mlp": ((-2,), (-1,)),
    "img/Transformer/encoderblock/MlpBlock_0": ((-2,), (-1,)),
    "MultiHeadDotProductAttention_0/query": ((-3,), (-2, -1)),
    "MultiHeadDotProductAttention_0/key": ((-3,), (-2, -1)),
    "MultiHeadDotProductAttention_0/value": ((-3,), (-2, -1)),
    "MultiHeadDotProductAttention_0/out": ((-3, -2), (-1,)),
}
"""Parts of paths to the axes that a matrix reads and writes; axes before them count layers and the like."""


def _matrices(params: Params) -> Params:
    """The matrices that Muon turns, each with its axes; None for everything else."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _axes(jax.tree_util.keystr(path, simple=True, separator="/"), leaf.ndim), params
    )


def _axes(path: str, rank: int) -> optax.contrib.MuonDimensionNumbers | None:
    if path.endswith("bias"):
        return None
    for part, (read, written) in _MATRICES.items():
        if part in path:
            return optax.contrib.MuonDimensionNumbers(
                reduction_axis=tuple(rank + axis for axis in read),
                output_axis=tuple(rank + axis for axis in written),
            )
    return None


def _decaying(params: Params) -> Params:
    flat = flax.traverse_util.flatten_dict(dict(params), sep="/")
    spared = ("bias", "scale", "embedding")
    return flax.traverse_util.unflatten_dict({path: not path.endswith(spared) for path in flat}, sep="/")


def begin(params: Params, recipe: Recipe) -> TrainState:
    """The state before the first step, in arrays of its own: a step uses up the state it is given."""
    ours = jax.tree.map(lambda leaf: jnp.array(leaf, jnp.float32), params)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=ours,
        average=jax.tree.map(jnp.copy, ours),
        optimiser=jax.jit(optimiser(recipe).init)(ours),
    )


def make_step(objective: Objective) -> Step:
    """The compiled step. A function of the state and the batch; the state is used up."""
    return functools.partial(_step, objective)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _step(objective: Objective, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
    recipe = objective.recipe
    key = jax.random.fold_in(jax.random.key(recipe.seed), state.step)
    gradient_of = jax.grad(objective.loss, has_aux=True)
    gradient, metrics = gradient_of(state.params, batch, key)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types; our own code does not
        change, moments = optimiser(recipe).update(gradient, state.optimiser, state.params)
        rate = jnp.asarray(rate_at(recipe)(state.step), jnp.float32)
    if recipe.texts_only:
        change = changing_texts_alone(change)
    params = optax.apply_updates(state.params, change)
    decay = _average_decay(recipe, state.step)
    after = dataclasses.replace(
        state,
        step=state.step + 1,
        params=params,
        average=jax.tree.map(lambda old, new: old + (new - old) * (1.0 - decay), state.average, params),
        optimiser=moments,
    )
    return after, {
        **metrics,
        "gradient_norm": optax.tree.norm(gradient),
        "learning_rate": rate,
    }


def _average_decay(recipe: Recipe, step: Array) -> Array:
    """Shorter in the beginning, so that the average forgets the initial parameters soon."""
    done = step.astype(jnp.float32)
    return jnp.minimum(recipe.ema, (1.0 + done) / (10.0 + done))
