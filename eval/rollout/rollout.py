"""One episode as a stream of queries: observe, ask the policy, act, until success or the step limit."""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from configs.action_prefix import ActionPrefix
from eval.policies.base import ChargesOwnTime, Policy
from eval.records.timing import Delivery, Latency
from eval.rollout.chunks import Overlap, validated_actions
from eval.rollout.clock import PAUSED, Clock, PausedClock, TimedQuery
from eval.rollout.delay_estimate import DelayEstimator
from eval.rollout.execution import Execution, Snapshot
from eval.rollout.timeline import ActionSpan, Timeline, Waiting
from oxygen.policy.reply import Reply, TextFinished
from sim_envs.suite import Suite
from sim_envs.truth.ground_truth import Truth
from sim_envs.world import EpisodeKey, Observation, World


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """One policy call and the control steps until the next one.

    Attributes:
        index: Number of the query in the episode.
        step: Control step at which it was issued, and the observation taken.
        observation: The policy's input.
        truth: Ground truth at the observation, if the world provides it.
        actions: The chunk of actions.
        reply: The texts and timings of the query.
        latency: How long it took in simulated time.
        actions_step: Control step from which its actions could be executed.
        free_step: Control step from which the next query could be issued.
        spans: Actions executed until the next query, in order.
        steps: Control steps of all spans.
        executed: The action of each.
        end_effector: Its position (m) before the first of them and after each; empty if not known.
        truths: Ground truth before each of them; empty on clock `paused`.
        continued: Steps that executed the previous chunk until the actions were available.
        held: Steps in which the robot held still.
        skipped: Leading actions of the chunk that were skipped.
        blended: Actions of the chunk that were averaged with the previous chunk.
        deliveries: Texts delivered before the episode ended.
        undelivered: Texts finished too late for that.
        pictures: Images between queries, for the video.
        success: Whether the task was solved afterwards.
        progress: Fraction of the task's criteria met afterwards.
        timings_ms: The policy's stages, and the world's: `observe` (render) and `advance` (physics).
    """

    index: int
    step: int
    observation: Observation
    truth: Truth | None
    actions: np.ndarray
    reply: Reply
    latency: Latency
    actions_step: int
    free_step: int
    spans: Sequence[ActionSpan]
    steps: int
    executed: Sequence[np.ndarray]
    end_effector: Sequence[np.ndarray]
    truths: Sequence[Truth | None]
    continued: int
    held: int
    skipped: int
    blended: int
    deliveries: Sequence[Delivery]
    undelivered: Sequence[TextFinished]
    pictures: Sequence[Snapshot]
    success: bool
    progress: float
    timings_ms: Mapping[str, float]


def rollout(
    world: World,
    policy: Policy,
    key: EpisodeKey,
    suite: Suite,
    instruction: str | None = None,
    *,
    clock: Clock = PAUSED,
    waiting: Waiting = Waiting.CONTINUE,
    overlap: Overlap = Overlap.SKIP,
    picture_steps: int | None = None,
) -> Iterator[Query]:
    """Run one episode; yields each query when the next one is due.

    Actions are executed as soon as `act` returns; language is completed afterwards (`settle`).

    Args:
        world: A world with the episode's task loaded.
        policy: The policy.
        key: The episode.
        suite: Its protocol has the limits and `replan_steps`.
        instruction: Given to the policy in place of the world's instruction, if not None.
        clock: Simulated time that queries take.
        waiting: What the robot does in that time.
        overlap: How a new chunk replaces the previous one. `rtc` needs a policy that supports
            `Observation.action_prefix`.
        picture_steps: Control steps between pictures for a video; None for no pictures.

    Raises:
        ActionError: Actions have a wrong shape or are not finite.
        PhysicsError: The physics diverged under its actions.
    """
    protocol = suite.protocol
    timeline = Timeline(
        control_hz=protocol.control_hz,
        replan_steps=protocol.replan_steps,
        waiting=waiting,
        max_steps=protocol.max_steps,
    )
    world.reset(init_id=key.init_id, seed=key.seed, settle_steps=protocol.settle_steps)
    policy.reset(key)
    execution = Execution(
        world, suite, timeline, watched=not isinstance(clock, PausedClock), picture_steps=picture_steps
    )
    delays = DelayEstimator(clock, key, control_hz=protocol.control_hz)
    while not (timeline.is_over or execution.success):
        timeline.issue()
        rest = timeline.rest
        prefix = delays.prefix(timeline.query, rest) if overlap is Overlap.RTC else None
        began = time.perf_counter()
        observation = _with_instruction(world.observe(), instruction, prefix)
        observed = time.perf_counter()
        truth = world.truth()
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
        execution.add_chunk(chunk, rest if overlap is Overlap.BLEND else None)
        execution.run()
        settling = time.perf_counter()
        reply = policy.settle()
        settle_ms = 1e3 * (time.perf_counter() - settling)
        latency = clock.latency(dataclasses.replace(timed, settle_ms=settle_ms, reply=reply))
        delays.note(latency)
        timeline.busy_for(latency.busy_ms)
        execution.run()
        deliveries, undelivered = execution.delivered(reply.finished, latency)
        yield Query(
            index=timeline.query,
            step=timeline.issued,
            observation=observation,
            truth=truth,
            actions=np.asarray(actions),
            reply=reply,
            latency=latency,
            actions_step=timeline.actions_at,
            free_step=timeline.free_at,
            spans=execution.spans,
            steps=timeline.step - timeline.issued,
            executed=execution.actions,
            end_effector=execution.end_effector,
            truths=execution.truths,
            continued=timeline.continued,
            held=timeline.held,
            skipped=timeline.skipped,
            blended=execution.blended,
            deliveries=deliveries,
            undelivered=undelivered,
            pictures=execution.pictures,
            success=execution.success,
            progress=world.progress(),
            timings_ms={
                **reply.timings_ms,
                "observe": 1e3 * (observed - began),
                "advance": execution.advance_ms,
            },
        )


def _with_instruction(
    observation: Observation, instruction: str | None, prefix: ActionPrefix | None
) -> Observation:
    language = observation.language if instruction is None else instruction
    return dataclasses.replace(observation, language=language, action_prefix=prefix)
