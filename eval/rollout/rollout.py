"""One episode as a stream of queries: observe, ask the policy, act, until success or the step limit."""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from configs.action_prefix import ActionPrefix
from eval.policies.base import Policy
from eval.records.timing import Delivery, Latency
from eval.rollout.chunks import Overlap, executable
from eval.rollout.clock import PAUSED, Call, Clock, PausedClock
from eval.rollout.execution import Execution, Snapshot
from eval.rollout.foresight import Foresight
from eval.rollout.timeline import ActionSpan, Timeline, Waiting
from oxygen.policy.reply import Reply, TextFinished
from sim_envs.suite import Suite
from sim_envs.truth.ground_truth import Truth
from sim_envs.world import EpisodeKey, Observation, World


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """One policy call, and the control steps until the next one.

    Attributes:
        index: Number of the query in the episode.
        step: Control step at which it was issued, and the observation taken.
        observation: What the policy was shown.
        truth: The world's own account of the moment it was shown, if it gives one.
        actions: The chunk of actions it answered with.
        reply: The texts and timings of the query.
        latency: How long it took in simulated time.
        actions_step: Control step from which its actions could be executed.
        free_step: Control step from which the next query could be issued.
        spans: What was executed until the next query, in order.
        steps: Control steps of all spans.
        continued: Those of the chunk before that were executed until the actions came.
        held: Those in which the robot was held still.
        skipped: Actions at the beginning of the chunk that were left out.
        blended: Actions of the chunk that were averaged with the chunk before.
        deliveries: Texts whose last token was known before the episode was over.
        undelivered: Texts that were finished too late for that.
        pictures: What the cameras showed meanwhile.
        success: Whether the task's goal held afterwards.
        progress: The share of the task's criteria that the world counted afterwards.
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


def rollout(  # noqa: PLR0913 - what an episode is, how time passes in it, and what is seen of it
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
    """Run one episode, yielding a query once the next one is due.

    Actions are executed as soon as `act` has returned; language is settled behind them.

    Args:
        world: A world with the episode's task loaded.
        policy: The policy.
        key: The episode.
        suite: Its protocol has the limits and the control steps between queries.
        instruction: What the policy is told; what the world says if None. The world's truth is its own.
        clock: How much simulated time queries take.
        waiting: What the robot does in that time.
        overlap: How a new chunk begins where the one before went on until then. Only a policy that heeds
            `Observation.action_prefix` can do with `rtc`.
        picture_steps: On a clock that is not paused, also take pictures between queries, so many control
            steps apart; none if None.

    Raises:
        ActionError: The policy's answer has a wrong shape or numbers that are not finite.
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
    foresight = Foresight(clock, key, control_hz=protocol.control_hz)
    while not (timeline.is_over or execution.success):
        timeline.issue()
        rest = timeline.rest
        prefix = foresight.prefix(timeline.query, rest) if overlap is Overlap.RTC else None
        began = time.perf_counter()
        observation = _told(world.observe(), instruction, prefix)
        observed = time.perf_counter()
        truth = world.truth()
        execution.begin_query(observation, truth)
        least = min(protocol.replan_steps, protocol.max_steps - timeline.step)
        asked = time.perf_counter()
        actions = policy.act(observation)
        act_ms = 1e3 * (time.perf_counter() - asked)
        call = Call(key=key, query=timeline.query, act_ms=act_ms, guided=prefix is not None)
        chunk = executable(actions, least=least, width=suite.interface.action.size)
        timeline.actions_after(clock.latency(call).actions_ms, horizon=len(chunk))
        execution.add_chunk(chunk, rest if overlap is Overlap.BLEND else None)
        execution.run()
        settling = time.perf_counter()
        reply = policy.settle()
        settle_ms = 1e3 * (time.perf_counter() - settling)
        latency = clock.latency(dataclasses.replace(call, settle_ms=settle_ms, reply=reply))
        foresight.note(latency)
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


def _told(observation: Observation, instruction: str | None, prefix: ActionPrefix | None) -> Observation:
    language = observation.language if instruction is None else instruction
    return dataclasses.replace(observation, language=language, action_prefix=prefix)
