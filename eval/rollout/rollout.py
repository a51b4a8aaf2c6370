"""One episode as a stream of queries: observe, ask the policy, act, until the world or the limit ends it."""

import dataclasses
import time
from collections.abc import Iterator

import numpy as np

from configs.schema import OverlapRule, WhileWaiting
from eval.policies.base import Policy
from eval.records.query_logs import QueryRecord
from eval.rollout.clock import PAUSED, Clock, DelayEstimator, TimedQuery
from eval.rollout.execution import Execution, validated_actions
from eval.rollout.feedback import EpisodeFeedback
from eval.rollout.timeline import Timeline
from sim_envs.suite import Suite
from sim_envs.world import EpisodeKey, World


def rollout(
    world: World,
    policy: Policy,
    key: EpisodeKey,
    suite: Suite,
    instruction: str | None = None,
    *,
    clock: Clock = PAUSED,
    while_waiting: WhileWaiting = "continue",
    overlap: OverlapRule = "skip",
    picture_steps: int | None = None,
    feedback: EpisodeFeedback | None = None,
) -> Iterator[QueryRecord]:
    """Run one episode; yields each query when the next one is due.

    Actions are executed as soon as `act` returns; language is completed afterwards (`complete`).

    Args:
        world: A world with the episode's task loaded.
        policy: The policy.
        key: The episode.
        suite: Its protocol has the limits and `replan_steps`.
        instruction: Given to the policy in place of the world's instruction, if not None.
        clock: Simulated time that queries take.
        while_waiting: What the robot does in that time; see `Timeline`.
        overlap: How a new chunk replaces the previous one: `skip` leaves out the actions of the control steps
            that the old chunk executed since the observation; `blend` also averages both over the rest of
            the old one; `rtc` also guides denoising towards that (real-time chunking), and needs a policy
            that supports `Observation.action_prefix`.
        picture_steps: Control steps between pictures for a video; None for no pictures.
        feedback: Texts in the policy's prompt; None if it reads none.

    Raises:
        ActionError: Actions have a wrong shape or are not finite.
        PhysicsError: The physics diverged under its actions.
    """
    protocol = suite.protocol
    timeline = Timeline(
        control_hz=protocol.control_hz,
        replan_steps=protocol.replan_steps,
        while_waiting=while_waiting,
        max_steps=protocol.max_steps,
    )
    world.reset(init_id=key.init_id, seed=key.seed, settle_steps=protocol.settle_steps)
    policy.reset(key)
    execution = Execution(world, suite, timeline, watched=clock is not PAUSED, picture_steps=picture_steps)
    delays = DelayEstimator(clock, key, control_hz=protocol.control_hz)
    while not (timeline.is_over or execution.ended):
        query, rest = timeline.issue(), timeline.rest
        prefix = delays.prefix(query.index, rest) if overlap == "rtc" else None
        began = time.perf_counter()
        observation = dataclasses.replace(world.observe(), action_prefix=prefix)
        if instruction is not None:
            observation = dataclasses.replace(observation, language=instruction)
        observed = time.perf_counter()
        truth = world.truth()
        query.truths[query.step] = truth
        if feedback is not None:
            observation, query.fed = feedback.observed(observation, query.step, truth)
            query.prompt = observation.language
        query.observation = observation
        execution.begin_query(observation)
        min_actions = min(protocol.replan_steps, protocol.max_steps - query.step)
        act_began = time.perf_counter()
        actions = policy.act(observation)
        act_ms = 1e3 * (time.perf_counter() - act_began)
        if (charged_ms := getattr(policy, "charged_ms", None)) is not None:
            act_ms = charged_ms
        timed = TimedQuery(key=key, index=query.index, act_ms=act_ms, guided=prefix is not None)
        chunk = validated_actions(actions, min_actions=min_actions, width=suite.interface.action.size)
        timeline.actions_after(clock.latency(timed).actions_ms, horizon=len(chunk))
        execution.add_chunk(chunk, rest if overlap == "blend" else None)
        execution.run()
        completing = time.perf_counter()
        reply = policy.complete()
        complete_ms = 1e3 * (time.perf_counter() - completing)
        latency = clock.latency(dataclasses.replace(timed, complete_ms=complete_ms, reply=reply))
        delays.note(latency)
        timeline.busy_for(latency.busy_ms)
        execution.run()
        query.delivered = execution.delivered(reply.finished, latency)
        if feedback is not None:
            feedback.delivered(query.delivered)
        query.actions = np.asarray(actions)
        query.timings_ms = {
            **reply.timings_ms,
            "observe": 1e3 * (observed - began),
            "advance": execution.advance_ms,
        }
        query.latency = None if clock is PAUSED else latency
        query.action_prefix, query.prompt_cut = prefix, reply.prompt_cut
        query.tokens, query.requested, query.dropped = reply.tokens, reply.requested, reply.dropped
        query.cancelled = len(reply.finished) - len(query.delivered)
        query.progress = world.progress()
        yield query
