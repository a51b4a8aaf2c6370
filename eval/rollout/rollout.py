"""One episode as a stream of queries: observe, ask the policy, act, until success or the step limit."""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float64, UInt8

from eval.policies.base import Policy
from eval.records.timing import Delivery, Latency
from eval.rollout.clock import PAUSED, Call, Clock, PausedClock
from eval.rollout.timeline import ActionSpan, Timeline, Waiting
from oxygen.policy.reply import Reply, TextFinished
from sim_envs.suite import Suite
from sim_envs.truth.account import Truth
from sim_envs.world import EpisodeKey, Observation, World


class ActionError(ValueError):
    """The policy answered with something that must not reach a simulator."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What the cameras showed at a control step between two queries. Policies are not shown it."""

    step: int
    images: Mapping[str, UInt8[np.ndarray, "height width 3"]]


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
    execution = _Execution(
        world, suite, timeline, watched=not isinstance(clock, PausedClock), picture_steps=picture_steps
    )
    while not (timeline.is_over or execution.success):
        timeline.issue()
        began = time.perf_counter()
        observation = _told(world.observe(), instruction)
        observed = time.perf_counter()
        truth = world.truth()
        execution.begin_query(observation, truth)
        least = min(protocol.replan_steps, protocol.max_steps - timeline.step)
        asked = time.perf_counter()
        actions = policy.act(observation)
        call = Call(key=key, query=timeline.query, act_ms=1e3 * (time.perf_counter() - asked))
        execution.add_chunk(executable(actions, least=least, width=suite.interface.action.size))
        timeline.actions_after(clock.latency(call).actions_ms, horizon=len(actions))
        execution.run()
        settling = time.perf_counter()
        reply = policy.settle()
        settle_ms = 1e3 * (time.perf_counter() - settling)
        latency = clock.latency(dataclasses.replace(call, settle_ms=settle_ms, reply=reply))
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


class _Execution:
    """Executes what the timeline says, and keeps what was seen meanwhile until the next query begins.

    Attributes:
        success: Whether the task is solved.
        spans: What was executed since the query was issued.
        pictures: What the cameras showed since.
        advance_ms: What physics took since, on this machine.
    """

    def __init__(
        self, world: World, suite: Suite, timeline: Timeline, *, watched: bool, picture_steps: int | None
    ) -> None:
        """Begin an episode.

        Args:
            world: The world.
            suite: Its interface says how the robot is held still.
            timeline: Of the episode.
            watched: Whether to look at every control step, so that texts can be delivered at any.
            picture_steps: Control steps between pictures, if it is watched; none are taken if None.
        """
        self._world = world
        self._suite = suite
        self._timeline = timeline
        self._watched = watched
        self._picture_steps = picture_steps if watched else None
        self._state = np.zeros(suite.interface.observation.state_size)
        self._moved = True  # since that state was read
        self._chunks: dict[int, np.ndarray] = {}
        self._last: np.ndarray | None = None
        self._truths: dict[int, Truth | None] = {}
        self._shown = 0
        self.success = False
        self.spans: list[ActionSpan] = []
        self.pictures: list[Snapshot] = []
        self.advance_ms = 0.0

    def begin_query(self, observation: Observation, truth: Truth | None) -> None:
        """A query was issued on this observation."""
        if self._moved:
            self._state, self._moved = observation.state, False
        self._truths = {self._timeline.step: truth}
        self._shown = self._timeline.step
        self.spans, self.pictures, self.advance_ms = [], [], 0.0

    def add_chunk(self, chunk: Float64[np.ndarray, "horizon action"]) -> None:
        """The actions of the query, which are kept until those of the next one have come."""
        query = self._timeline.query
        self._chunks = {number: old for number, old in self._chunks.items() if number == query - 1}
        self._chunks[query] = chunk

    def run(self) -> None:
        """Execute what there is to execute now, up to success."""
        began = time.perf_counter()
        looked = 0.0
        while not self.success and (span := self._timeline.next_span()):
            piece = dataclasses.replace(span, steps=1) if self._watched else span
            self._advance(piece)
            if self._watched:
                before = time.perf_counter()
                self._look()
                looked += time.perf_counter() - before
        self.advance_ms += 1e3 * (time.perf_counter() - began - looked)

    def delivered(
        self, texts: Sequence[TextFinished], latency: Latency
    ) -> tuple[list[Delivery], list[TextFinished]]:
        """Which of the texts finished in the query were delivered by now, and which were too late."""
        deliveries, late = [], []
        for text, after_ms in zip(texts, latency.texts_ms, strict=True):
            step = self._timeline.step_after(after_ms)
            if step in self._truths:
                deliveries.append(Delivery(text=text, step=step, truth=self._truths[step]))
            else:
                late.append(text)
        return deliveries, late

    def _advance(self, span: ActionSpan) -> None:
        advance = self._world.advance(self._actions(span))
        self._timeline.advance(span, advance.steps)
        self.success = advance.success
        _append(self.spans, dataclasses.replace(span, steps=advance.steps))

    def _actions(self, span: ActionSpan) -> np.ndarray:
        if span.chunk is None:
            actions = np.tile(self._hold_action(), (span.steps, 1))
        else:
            actions = self._chunks[span.chunk][span.first : span.first + span.steps]
            self._moved = True
        self._last = actions[-1]
        return actions

    def _hold_action(self) -> np.ndarray:
        """Holds the robot where it was when it began to be held; an older state would move it back there."""
        if self._moved and self._suite.interface.action.holds_state:
            self._state, self._moved = self._world.observe().state, False
        return self._suite.interface.hold_action(self._state, self._last)

    def _look(self) -> None:
        step = self._timeline.step
        self._truths[step] = self._world.truth()
        if self._picture_steps is None or self.success or self._timeline.next_span() is None:
            return  # the next query takes a picture itself
        if step - self._shown >= self._picture_steps:
            self._shown = step
            self.pictures.append(Snapshot(step=step, images=self._world.observe().images))


def _append(spans: list[ActionSpan], span: ActionSpan) -> None:
    """Add a span; one that goes on with the last of them is joined to it."""
    if spans and spans[-1].chunk == span.chunk:
        spans[-1] = dataclasses.replace(spans[-1], steps=spans[-1].steps + span.steps)
    else:
        spans.append(span)


def _told(observation: Observation, instruction: str | None) -> Observation:
    return observation if instruction is None else dataclasses.replace(observation, language=instruction)


def executable(actions: object, *, least: int, width: int) -> Float64[np.ndarray, "horizon action"]:
    """`actions` as an array a simulator may be given.

    Raises:
        ActionError: Fewer than `least` actions, another width, or numbers that are not finite.
    """
    try:
        array = np.asarray(actions, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ActionError(f"actions are no array of numbers: {error}") from error
    if array.ndim != 2 or array.shape[1] != width or array.shape[0] < least:
        raise ActionError(f"actions have shape {array.shape}, should have (at least {least}, {width})")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ActionError(
            f"action {row} holds {array[row, column]} in dimension {column}; all must be finite"
        )
    return array
