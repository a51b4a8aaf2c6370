"""Loads a policy with a model: weights, tokenizer, normalisation statistics, engine."""

import dataclasses
import functools
from collections.abc import Sequence

from configs.schema import PolicyConfig
from oxygen.model.config import preset as model_config
from oxygen.policy.vector_policy import VectorPolicy, create_vector_policy
from oxygen.robots import tokenizer as tokenizers
from oxygen.robots.transforms import embodiment, of_checkpoint, untrained
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import LanguageTask
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.formats import open_checkpoint
from oxygen.weights.loading import load as load_weights
from oxygen.weights.source import fetch


def load_policy(
    policy: PolicyConfig,
    *,
    tasks: Sequence[LanguageTask],
    engine: EngineConfig,
    dtype: str | None = None,
    random_weights: bool = False,
) -> VectorPolicy:
    """Load and compile a policy of kind `oxygen`, by default in the model's own compute type.

    With `random_weights`, it needs no checkpoint, tokenizer and statistics; its adapter is random, too.
    Refuses a checkpoint that is not available or does not fit the model.
    """
    model = model_config(policy.model or policy.name)
    model = dataclasses.replace(model, dtype=dtype or model.dtype)
    trained = policy.weights is not None and not random_weights
    if trained and "://" not in str(policy.weights):
        open_checkpoint(fetch(str(policy.weights)))  # refuse a wrong path before downloading a tokenizer
    robot = embodiment(str(policy.embodiment))
    transform = untrained(robot)
    if trained:
        transform = of_checkpoint(robot, fetch(policy.norm_stats or str(policy.weights)))
    loader = functools.partial(load_weights, str(policy.weights), model)
    return create_vector_policy(
        model,
        weights=loader if trained else policy.weights_seed,
        tokenizer=tokenizers.load(str(policy.tokenizer)) if trained else tokenizers.tiny(),
        tasks=tasks,
        engine=engine,
        transform=transform,
        adapter=adapter_source(policy, random_weights=random_weights),
    )


def adapter_source(policy: PolicyConfig, *, random_weights: bool = False) -> AdapterSource | None:
    """Where a policy's adapter comes from; None if it has none."""
    if policy.adapter is None:
        return None
    fields = policy.adapter.model_dump()
    return AdapterSource(**fields | {"file": None, "sha256": None} if random_weights else fields)
