"""Creates a policy: checks its parts, loads the weights, compiles and warms up."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from oxygen.model.config import Pi05Config
from oxygen.policy.vector_policy import PolicyParts, VectorPolicy
from oxygen.robots.tokenizer import Tokenizer, check_fits
from oxygen.robots.transforms import LIBERO, Transform, untrained
from oxygen.serving.engine_config import EngineConfig, sizes_for
from oxygen.serving.language import LanguageTask, check_draws, tokenized
from oxygen.serving.runner import Runner
from oxygen.serving.scheduler import Mode, check_slots
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.weights_source import WeightsSource, load_weights, loadable, required


def create_vector_policy(
    config: Pi05Config,
    *,
    weights: WeightsSource,
    tokenizer: Tokenizer,
    tasks: Sequence[LanguageTask] = (),
    engine: EngineConfig | None = None,
    transform: Transform | None = None,
    adapter: AdapterSource | None = None,
) -> VectorPolicy:
    """Build a policy and compile its programs.

    Args:
        config: The model's sizes. With several robots, all prompts are padded to the longest bucket; remove
            long buckets that are not needed.
        weights: Parameters in openpi's layout, a function that loads them, or a seed for random ones. Mode
            `parallel` loads them in a second process as well, so it needs a seed or a picklable function.
        tokenizer: The vocabulary the weights were trained with.
        tasks: The language tasks. Mode `actions` ignores them.
        engine: Mode and sizes of the engine.
        transform: Conversion of observations and actions; LIBERO's without normalisation if None.
        adapter: A suffix adapter, which changes texts but no action; None without one.

    Raises:
        UsageError: The parts do not fit together.
    """
    engine = engine or EngineConfig()
    if engine.robots > 1:  # the padding of a prompt must not depend on other robots
        config = dataclasses.replace(config, prompt_buckets=(config.max_prompt,))
    check_fits(tokenizer, config)
    check_draws(tasks, config.vocab_size)
    transform = transform or untrained(LIBERO)
    transform.check_fits(config)
    in_tokens = [tokenized(task, tokenizer) for task in tasks]
    check_slots(slots=engine.slots, tasks=len(tasks), robots=engine.robots)
    if engine.mode is Mode.PARALLEL:
        required(loadable(weights))
    loaded = load_weights(weights, config)
    beside = None if adapter is None else adapter.load(config, loaded)
    runner = Runner(config, loaded, sizes_for(engine, in_tokens), adapter=beside)
    parts = PolicyParts(
        runner=runner,
        tokenizer=tokenizer,
        tasks=tuple(tasks),
        transform=transform,
        weights=loadable(weights),
        adapter=adapter,
    )
    policy = VectorPolicy(parts, engine)
    _warm_up(policy)
    return policy


def _warm_up(policy: VectorPolicy) -> None:
    """Run one query, so that the caller's first one needs no imports and allocations."""
    config, robots = policy.runner.config, policy.engine.robots
    black = np.zeros((2 * config.image_size, config.image_size, 3), np.uint8)
    state = np.zeros(policy.transform.norms.state.size)
    observation = {"images": dict.fromkeys(config.cameras, black), "state": state, "prompt": ""}
    policy.act([observation] * robots)
    policy.complete()
    for robot in range(robots):
        policy.finish(robot)
        policy.reset(robot, 0)
