"""Builds a policy of its parts: checks that they fit, loads the weights, compiles and warms up."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.policy.vector_policy import Parts, VectorPolicy
from oxygen.robots.tokenizer import Tokenizer, check_fits
from oxygen.robots.transforms import LIBERO, Transform, untrained
from oxygen.serving.engine_config import EngineConfig, check_slots, sizes_for
from oxygen.serving.language import LanguageTask, check_draws, stop_token
from oxygen.serving.runner import Runner
from oxygen.serving.scheduler import Mode
from oxygen.serving.voice import Suffix
from oxygen.weights.source_of import WeightsSource, load_weights, loadable, required


def create_vector_policy(
    config: Pi05Config,
    *,
    weights: WeightsSource,
    tokenizer: Tokenizer,
    tasks: Sequence[LanguageTask] = (),
    engine: EngineConfig | None = None,
    transform: Transform | None = None,
) -> VectorPolicy:
    """Build a policy and compile its programs.

    Args:
        config: The model's sizes. Several robots pad their prompts to the longest of its buckets, whatever
            they ask; where shorter ones are enough, leave the longer buckets out.
        weights: Parameters in openpi's layout, a function that loads them, or the seed of random ones. Mode
            `parallel` loads them in a second process, too, so it takes a seed, or a function that can be
            pickled.
        tokenizer: The vocabulary the weights were trained with.
        tasks: The texts wanted beside actions. Mode `actions` leaves them alone.
        engine: Mode and sizes of the engine.
        transform: The robots' way in and out; LIBERO's, with its numbers as they are, if None.

    Raises:
        UsageError: The parts do not fit together.
    """
    engine = engine or EngineConfig()
    config = _for_company(config, engine.robots)
    check_fits(tokenizer, config)
    check_draws(tasks, config.vocab_size)
    transform = transform or untrained(LIBERO)
    transform.check_fits(config)
    suffixes = tuple(_suffix(task, tokenizer) for task in tasks)
    check_slots(engine, len(tasks))
    if engine.mode is Mode.PARALLEL:
        required(loadable(weights))
    runner = Runner(config, load_weights(weights, config), sizes_for(engine, tasks, suffixes))
    parts = Parts(
        runner=runner,
        tokenizer=tokenizer,
        tasks=tuple(tasks),
        suffixes=suffixes,
        transform=transform,
        weights=loadable(weights),
    )
    policy = VectorPolicy(parts, engine)
    _warm_up(policy)
    return policy


def _for_company(config: Pi05Config, robots: int) -> Pi05Config:
    """Robots that share a batch share a bucket: the longest, so that nobody's prompt decides for another."""
    return config if robots == 1 else dataclasses.replace(config, prompt_buckets=(config.max_prompt,))


def _suffix(task: LanguageTask, tokenizer: Tokenizer) -> Suffix:
    tokens = tuple(tokenizer.encode(task.prompt))
    if not tokens:
        raise UsageError(f"language task {task.name!r}: prompt {task.prompt!r} has no tokens")
    stop_token(task, tokenizer)  # refused here, it costs nobody the time to compile
    return Suffix(tokens=tokens, sampling=task.sampling)


def _warm_up(policy: VectorPolicy) -> None:
    """Go the whole way once, so that the first query pays for no import and no allocation."""
    config, robots = policy.runner.config, policy.engine.robots
    black = np.zeros((2 * config.image_size, config.image_size, 3), np.uint8)
    state = np.zeros(policy.transform.norms.state.size)
    observation = {"images": dict.fromkeys(config.cameras, black), "state": state, "prompt": ""}
    policy.infer([observation] * robots)
    for robot in range(robots):
        policy.finish(robot)
        policy.reset(robot, 0)
