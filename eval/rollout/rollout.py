"""One episode as a stream of queries: observe, ask the policy, act, until the world or the limit ends it."""

import dataclasses
import time
from collections.abc import Iterator, Mapping

import numpy as np

from configs.schema import OverlapRule, WhileWaiting
from eval.policies.base import ChargesOwnTime, Policy
from eval.records.query_logs import FedText, QueryRecord
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
        timeline.issue()
        rest = timeline.rest
        prefix = delays.prefix(timeline.query, rest) if overlap == "rtc" else None
        began = time.perf_counter()
        observation = dataclasses.replace(world.observe(), action_prefix=prefix)
        if instruction is not None:
            observation = dataclasses.replace(observation, language=instruction)
        observed = time.perf_counter()
        truth = world.truth()
        fed: Mapping[str, FedText] = {}
        if feedback is not None:
            observation, fed = feedback.observed(observation, timeline.step, truth)
        execution.begin_query(observation, truth)
        min_actions = min(protocol.replan_steps, protocol.max_steps - timeline.step)
        act_began = time.perf_counter()
        actions = policy.act(observation)
        act_ms = 1e3 * (time.perf_counter() - act_began)
        if isinstance(policy, ChargesOwnTime) and policy.charged_ms is not None:
            act_ms = policy.charged_ms
        timed = TimedQuery(key=key, index=timeline.query, act_ms=act_ms, guided=prefix is not None)
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
        delivered = execution.delivered(reply.finished, latency)
        if feedback is not None:
            feedback.delivered(delivered)
        yield QueryRecord(
            index=timeline.query,
            actions=np.asarray(actions),
            timings_ms={
                **reply.timings_ms,
                "observe": 1e3 * (observed - began),
                "advance": execution.advance_ms,
            },
            step=timeline.issued,
            steps=timeline.step - timeline.issued,
            latency=None if clock is PAUSED else latency,
            actions_step=timeline.actions_at,
            free_step=timeline.free_at,
            continued=timeline.continued,
            held=timeline.held,
            skipped=timeline.skipped,
            spans=execution.spans,
            blended=execution.blended,
            action_prefix=prefix,
            prompt=None if feedback is None else observation.language,
            fed=fed,
            prompt_cut=reply.prompt_cut,
            tokens=reply.tokens,
            requested=reply.requested,
            delivered=delivered,
            dropped=reply.dropped,
            truths=execution.truths,
            cancelled=len(reply.finished) - len(delivered),
            executed=execution.actions,
            end_effector=execution.end_effector,
            observation=observation,
            pictures=execution.pictures,
            success=execution.success,
            failed=execution.failed,
            progress=world.progress(),
        )
