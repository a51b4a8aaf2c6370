"""One step of training: AdamW along a cosine, the gradient clipped, an average of the parameters kept."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import flax.traverse_util
import jax
import jax.numpy as jnp
import optax

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
        optimiser: AdamW's moments and counters.
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
        peak_value=recipe.peak_rate,
        warmup_steps=min(recipe.warm_up, recipe.steps - 1),
        decay_steps=recipe.steps,
        end_value=recipe.peak_rate * recipe.last_rate,
    )


def optimiser(recipe: Recipe) -> optax.GradientTransformation:
    """AdamW with the gradient clipped before; only matrices decay, not biases, scales and embeddings."""
    adam = optax.adamw(rate_at(recipe), b1=0.9, b2=0.99, weight_decay=recipe.weight_decay, mask=_decaying)
    return optax.chain(optax.clip_by_global_norm(recipe.clip), adam)


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
