"""One episode as a stream of queries: observe, ask the policy, act, until success or the step limit."""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Float64

from configs.schema import SuiteConfig
from eval.policies.engine import Policy
from oxygen.policy.reply import Reply
from sim_envs.truth.account import Truth
from sim_envs.world import EpisodeKey, Observation, World


class ActionError(ValueError):
    """The policy answered with something that must not reach a simulator."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """One policy call and what came of it.

    Attributes:
        index: Number of the query in the episode.
        step: Control step at which the observation was taken.
        observation: What the policy was shown.
        truth: The world's own account of the moment it was shown, if it gives one.
        actions: The chunk that it answered with.
        reply: The rest of its answer.
        steps: Control steps of the answer that were executed.
        success: Whether the task's goal held afterwards.
        timings_ms: The policy's stages, and the world's: `observe` (render) and `advance` (physics).
    """

    index: int
    step: int
    observation: Observation
    truth: Truth | None
    actions: Float64[np.ndarray, "horizon action"]
    reply: Reply
    steps: int
    success: bool
    timings_ms: Mapping[str, float]


def rollout(
    world: World, policy: Policy, key: EpisodeKey, protocol: SuiteConfig, instruction: str | None = None
) -> Iterator[Query]:
    """Run one episode, yielding after every query's actions were executed.

    Args:
        world: A world with the episode's task loaded.
        policy: Who acts.
        key: The episode.
        protocol: Limits; `replan_steps` actions of every answer are executed before the next query.
        instruction: What the policy is told; what the world says if None. The world's truth is its own.

    Raises:
        ActionError: The policy's answer has a wrong shape or numbers that are not finite.
    """
    world.reset(init_id=key.init_id, seed=key.seed, settle_steps=protocol.settle_steps)
    policy.reset(world, key)
    step = 0
    for index in itertools.count():
        began = time.perf_counter()
        observation = _told(world.observe(), instruction)
        observed = time.perf_counter()
        truth = world.truth()
        actions = policy.act(observation)
        budget = min(protocol.replan_steps, protocol.max_steps - step)
        chunk = executable(actions, least=min(protocol.replan_steps, budget))[:budget]
        answered = time.perf_counter()
        advance = world.advance(chunk)
        world_ms = {"observe": 1e3 * (observed - began), "advance": 1e3 * (time.perf_counter() - answered)}
        reply = policy.settle()
        yield Query(
            index=index,
            step=step,
            observation=observation,
            truth=truth,
            actions=actions,
            reply=reply,
            steps=advance.steps,
            success=advance.success,
            timings_ms={**reply.timings_ms, **world_ms},
        )
        step += advance.steps
        if advance.success or step >= protocol.max_steps:
            return


def _told(observation: Observation, instruction: str | None) -> Observation:
    return observation if instruction is None else dataclasses.replace(observation, language=instruction)


def executable(actions: object, *, least: int, width: int = 7) -> Float64[np.ndarray, "horizon 7"]:
    """`actions` as an array a simulator may be given.

    Raises:
        ActionError: Fewer than `least` actions, another width, or numbers that are not finite.
    """
    array = np.asarray(actions, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != width or array.shape[0] < least:
        raise ActionError(f"actions have shape {array.shape}, should have (at least {least}, {width})")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ActionError(
            f"action {row} holds {array[row, column]} in dimension {column}; all must be finite"
        )
    return array
