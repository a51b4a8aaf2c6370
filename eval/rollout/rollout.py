"""One episode as a stream of queries: observe, ask the policy, act, until the world or the limit ends it.

A query is issued at control step s. Its actions are available at step s + a, and the next query can start at
s + b; latencies are rounded up to whole control steps. Until the actions are available, the robot continues
the previous chunk (`continue`), and the next query is due `replan_steps` after this one was issued; or it
holds still (`hold`), as blocking clients do, and the next query is due `replan_steps` after the actions.

A new chunk starts after as many of its actions as old ones were executed since its observation; idle steps do
not count (as in LeRobot's asynchronous client). With overlap `whole` it starts at its first action. Where no
action is left, the robot holds still.
"""

import contextlib
import copy
import dataclasses
import functools
import reprlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float64

from configs.schema import OverlapRule, SuiteConfig, WhileWaiting
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.interface import ActionSpec, Hold, Motion, Rotation
from contracts.latency import Latency, steps_in
from contracts.observation import ActionPrefix, Observation
from contracts.prompt import instruction_at
from contracts.query import ActionSpan, FedText, QueryExecution, QueryRecord, QuerySchedule, Snapshot
from contracts.text import Text
from contracts.truth import Truth
from eval.policies.base import BadAnswerError, Policy, numeric_actions
from eval.rollout.feedback import EpisodeFeedback
from eval.rollout.pricing import UNCHARGED, DelayEstimator, Pricing, TimedQuery
from sim_envs.suite import Suite
from sim_envs.world import AdvanceResult, PhysicsError, World, as_progress, read_truth

ResultT = TypeVar("ResultT")


def rollout(
    world: World,
    policy: Policy,
    key: EpisodeKey,
    suite: Suite,
    instructions: Mapping[int, str] | None = None,
    *,
    pricing: Pricing = UNCHARGED,
    while_waiting: WhileWaiting = "continue",
    overlap: OverlapRule = "skip",
    picture_steps: int | None = None,
    feedback: EpisodeFeedback | None = None,
    history: int = 0,
) -> Iterator[QueryRecord]:
    """Run one episode; yields each query when the next one is due.

    Actions are executed as soon as `act` returns; language is completed afterwards (`complete`). The world
    has the episode's task loaded, and the suite's protocol the limits and `replan_steps`.

    Args:
        instructions: Given to the policy in place of the world's instruction, each from a control step on.
        overlap: How a new chunk replaces the previous one, see `ScheduledConfig`; `rtc` needs a policy that
            supports `Observation.action_prefix`.
        picture_steps: Control steps between pictures for a video; None for no pictures.
        feedback: Texts in the policy's prompt; None if it reads none.
        history: Control steps before a query whose observations it has, too.

    Raises:
        ActionError: Actions have a wrong shape or are not finite.
        PhysicsError: The physics diverged under its actions; a RuntimeError if before its first one.
    """
    protocol = suite.protocol
    timeline = Timeline(protocol, while_waiting, skips=overlap != "whole")
    with _before_the_policy_acts():
        world.reset(init_id=key.init_id, seed=key.seed, settle_steps=protocol.settle_steps)
    policy.reset(key)
    execution = Execution(
        world,
        suite,
        timeline,
        overlap=overlap,
        watched=pricing != UNCHARGED,
        picture_steps=picture_steps,
        history=history,
        instructions=instructions,
    )
    delays = DelayEstimator(pricing, key, control_hz=protocol.control_hz, guided=overlap == "rtc")
    queries = _Queries(world, policy, key, suite, pricing, delays, timeline, execution, feedback)
    while not (timeline.is_over or execution.ended):
        yield queries.play_next()


@dataclasses.dataclass(frozen=True)
class _Queries:
    """The queries of one episode."""

    world: World
    policy: Policy
    key: EpisodeKey
    suite: Suite
    pricing: Pricing
    delays: DelayEstimator
    timeline: "Timeline"
    execution: "Execution"
    feedback: EpisodeFeedback | None

    def play_next(self) -> QueryRecord:
        """Issue a query, and execute until the next one is due."""
        policy, timeline, execution = self.policy, self.timeline, self.execution
        query, protocol = timeline.issue(), self.suite.protocol
        observation = execution.observe(delay=self.delays.steps(query.index))
        fed: Mapping[str, FedText] = {}
        if self.feedback is not None:
            truth, error = execution.truths[query.step], execution.truth_error
            observation, fed = self.feedback.observed(observation, query.step, truth, error=error)
        given = copy.deepcopy(observation)  # which the policy may change
        actions, act_ms = _timed(functools.partial(policy.act, given))
        act_ms = act_ms if policy.charged_ms is None else policy.charged_ms
        guided = observation.action_prefix is not None
        timed = TimedQuery(key=self.key, index=query.index, act_ms=act_ms, guided=guided)
        min_actions = min(protocol.replan_steps, protocol.max_steps - query.step)
        chunk = validated_actions(actions, min_actions=min_actions, width=self.suite.interface.action.size)
        timeline.actions_after(self.pricing.latency(timed).actions_ms, horizon=len(chunk))
        execution.add_chunk(chunk)
        execution.run()
        reply, complete_ms = _timed(policy.complete)
        for text in reply.finished:
            if not 0 <= text.requested_query <= query.index:
                raise BadAnswerError(
                    f"the policy sent a text of query {text.requested_query} (`Text.requested_query`) in "
                    f"query {query.index}"
                )
        latency = self.pricing.latency(dataclasses.replace(timed, complete_ms=complete_ms, reply=reply))
        self.delays.note(latency)
        timeline.busy_for(latency.busy_ms)
        execution.run()
        delivered = execution.delivered(reply.finished, latency)
        if self.feedback is not None:
            self.feedback.delivered(delivered)
        return QueryRecord(
            **vars(timeline.query),
            **vars(execution.record()),
            actions=chunk,
            timings_ms={**reply.timings_ms, **execution.timings_ms},
            latency=latency if self.pricing != UNCHARGED else None,
            action_prefix=observation.action_prefix,
            prompt=None if self.feedback is None else observation.language,
            fed=fed,
            prompt_cut=reply.prompt_cut,
            tokens=reply.tokens,
            requested=reply.requested,
            delivered=delivered,
            dropped=reply.dropped,
            cancelled=len(reply.finished) - len(delivered),
            observation=observation,
            progress=as_progress(self.world.progress()),
        )


def _timed(call: Callable[[], ResultT]) -> tuple[ResultT, float]:
    """The result of a call, and its milliseconds of wall time."""
    began = time.perf_counter()
    result = call()
    return result, 1e3 * (time.perf_counter() - began)


@contextlib.contextmanager
def _before_the_policy_acts() -> Iterator[None]:
    """Physics that diverge here are an error of the world, not a failure of the policy."""
    try:
        yield
    except PhysicsError as error:
        raise RuntimeError(f"before the policy's first action: {error}") from error


class Timeline:
    """The control steps of one episode.

    For each query: `issue`, `actions_after`, `next_span` and `advance` until there is no next span, then
    `busy_for` and again `next_span` and `advance`.

    Attributes:
        step: Control steps executed so far.
        query: Schedule of the last query so far; number -1 before the first.
    """

    def __init__(self, protocol: SuiteConfig, while_waiting: WhileWaiting, *, skips: bool = True) -> None:
        """Start at control step 0, without a chunk. `max_steps` of the protocol counts idle steps, too.

        With `skips`, a chunk leaves out as many actions as the previous one continued since its observation.
        """
        self._protocol = protocol
        self._holds = while_waiting == "hold"
        self._skips = skips
        self._chunk: int | None = None
        self._cursor = self._horizon = 0  # next action of the current chunk, and its length
        self._coming = 0  # length of the chunk that is not yet available
        self.step = 0
        self.query = QuerySchedule(index=-1)

    @property
    def is_over(self) -> bool:
        """Whether the step limit is reached."""
        return self.step >= self._protocol.max_steps

    @property
    def rest(self) -> ActionSpan | None:
        """The rest of the current chunk; None if it is used up."""
        left = self._horizon - self._cursor
        return ActionSpan(chunk=self._chunk, first=self._cursor, steps=left) if left > 0 else None

    def continued_within(self, steps: int) -> ActionSpan | None:
        """The part of the current chunk executed in the `steps` until a new one comes; None if none is."""
        if (rest := self.rest) is None or self._holds or steps == 0:
            return None
        return rest._replace(steps=min(steps, rest.steps))

    @property
    def next_query(self) -> int:
        """The control step of the next query, as far as is known."""
        since = self.query.actions_step if self._holds else self.query.step
        return max(since + self._protocol.replan_steps, self.query.free_step)

    def issue(self) -> QuerySchedule:
        """Issue a query now."""
        now = self.step
        self.query = QuerySchedule(index=self.query.index + 1, step=now, actions_step=now, free_step=now)
        return self.query

    def _update(self, **changes: int) -> None:
        self.query = dataclasses.replace(self.query, **changes)

    def actions_after(self, milliseconds: float, *, horizon: int) -> None:
        """Set the simulated time until the actions of the query, `horizon` in number, are available."""
        step = self.step_after(milliseconds)
        self._update(actions_step=step, free_step=step)
        self._coming = horizon
        self._take_chunk()

    def busy_for(self, milliseconds: float) -> None:
        """Set how long the policy is busy with the query; at least until its actions are available."""
        self._update(free_step=max(self.query.actions_step, self.step_after(milliseconds)))

    def step_after(self, milliseconds: float) -> int:
        """The control step `milliseconds` after the query was issued."""
        return self.query.step + steps_in(milliseconds, self._protocol.control_hz)

    def next_span(self) -> ActionSpan | None:
        """The next actions to execute; None if the next query is due or the episode is over."""
        steps = min(self.next_query, self._protocol.max_steps) - self.step
        if self._coming:
            steps = min(steps, self.query.actions_step - self.step)
        if steps <= 0:
            return None
        left = 0 if self._coming and self._holds else self._horizon - self._cursor
        if left > 0:
            return ActionSpan(chunk=self._chunk, first=self._cursor, steps=min(left, steps))
        return ActionSpan(chunk=None, first=0, steps=steps)

    def advance(self, span: ActionSpan, steps: int) -> None:
        """Record that `steps` control steps of `next_span` were executed."""
        query = self.query
        self.step += steps
        self._update(steps=query.steps + steps)
        if span.chunk is None:
            self._update(idle=query.idle + steps)
        else:
            self._cursor += steps
            self._update(continued=query.continued + (steps if self._coming else 0))
        self._take_chunk()

    def _take_chunk(self) -> None:
        """Switch to the chunk of the last query once it is available."""
        query = self.query
        if self._coming and self.step >= query.actions_step:
            skipped = min(query.continued, self._coming) if self._skips else 0
            self._update(skipped=skipped)
            self._chunk, self._cursor, self._horizon = query.index, skipped, self._coming
            self._coming = 0


class Execution:
    """Executes the actions of a timeline, and records what happens in its last query.

    Attributes:
        timings_ms: Wall time of the query's observation (`observe`), and of physics since then (`advance`).
        truths: Control step to ground truth since then; None if the world provides none.
        truth_error: Why one of them is None, if the world failed to provide it.
    """

    def __init__(
        self,
        world: World,
        suite: Suite,
        timeline: Timeline,
        *,
        overlap: OverlapRule,
        watched: bool,
        picture_steps: int | None,
        history: int,
        instructions: Mapping[int, str] | None,
    ) -> None:
        """Begin an episode in a world with its task loaded. Options are those of `rollout`.

        `watched` reads the world's truth at every control step, at which texts may be delivered.
        """
        self._world = world
        self._suite = suite
        self._timeline = timeline
        self._overlap = overlap
        self._watched = watched
        self._picture_steps = picture_steps
        self._instructions = instructions
        self._seen = deque[tuple[int, Observation]](maxlen=history)  # by control step, before the query
        self._state = np.zeros(suite.interface.observation.state_size)
        self._moved = True  # since the state was read
        self._acted = False  # whether an action of the policy was executed
        self._chunks: dict[int, np.ndarray] = {}
        self._last: np.ndarray | None = None
        self._rest: ActionSpan | None = None  # of the chunk that was executed when the query was issued
        self._picture_due = 0
        self._success = self._failed = False
        self._begin_record()

    def _begin_record(self) -> None:
        self.timings_ms = {"observe": 0.0, "advance": 0.0}
        self.truths: dict[int, Truth | None] = {}
        self.truth_error: str | None = None
        self._spans: list[ActionSpan] = []
        self._blended = 0
        self._executed: list[np.ndarray] = []
        self._end_effector: list[np.ndarray] = []
        self._pictures: list[Snapshot] = []

    @property
    def ended(self) -> bool:
        """Whether the world has ended the episode."""
        return self._success or self._failed

    def observe(self, *, delay: int) -> Observation:
        """The observation of a query that was issued now, whose actions are expected `delay` steps later."""
        self._begin_record()
        observation, self.timings_ms["observe"] = _timed(self._observed)
        if not np.isfinite(observation.state).all():  # else the policy's actions would be blamed
            raise UsageError(f"the world's state is not finite: {observation.state.tolist()}")
        self._read_truth()
        if self._moved:
            self._state, self._moved = observation.state, False
        self._rest = self._timeline.rest
        self._picture_due = self._timeline.step + (self._picture_steps or 0)
        history = tuple(seen for _, seen in self._seen)
        if self._seen.maxlen:
            self._remember(observation)
        if self._instructions:
            language = instruction_at(self._instructions, self._timeline.step)
            observation = dataclasses.replace(observation, language=language)
        executing, prefix = self._timeline.continued_within(delay), None
        if executing is not None and self._overlap == "rtc":
            prefix = ActionPrefix(first=executing.first, delay=executing.steps)
        actions = self._planned(executing)
        return dataclasses.replace(
            observation, history=history, delay_steps=delay, executing=actions, action_prefix=prefix
        )

    def _observed(self) -> Observation:
        return copy.deepcopy(self._world.observe())  # which the world may overwrite

    def _remember(self, observation: Observation) -> None:
        self._seen.append((self._timeline.step, observation))

    def record(self) -> QueryExecution:
        """What happened since the query was issued."""
        return QueryExecution(
            spans=self._spans,
            blended=self._blended,
            truths=self.truths,
            truth_error=self.truth_error,
            executed=self._executed,
            end_effector=self._end_effector,
            pictures=self._pictures,
            success=self._success,
            failed=self._failed,
        )

    def _planned(self, span: ActionSpan | None) -> Float64[np.ndarray, "steps action"]:
        """The actions of a span of a chunk; none without a span."""
        if span is None or span.chunk is None:
            return np.empty((0, self._suite.interface.action.size))
        return self._chunks[span.chunk][span.first : span.first + span.steps].copy()

    def add_chunk(self, chunk: Float64[np.ndarray, "horizon action"]) -> None:
        """Add the actions of the query, into which `blend` averages the rest of the previous chunk."""
        query, given = self._timeline.query, chunk
        self._chunks = {number: old for number, old in self._chunks.items() if number == query.index - 1}
        rest = self._rest if self._overlap == "blend" else None
        if rest is not None and rest.chunk is not None:
            chunk = blend_chunks(
                self._chunks[rest.chunk][rest.first :],
                given,
                late=min(query.actions_step - query.step, rest.steps),
                channels=averaged_channels(self._suite.interface.action),
            )
        self._blended = int((chunk != given).any(axis=1).sum())
        self._chunks[query.index] = chunk

    def run(self) -> None:
        """Execute all actions that are due, up to success or failure."""
        timeline, spans = self._timeline, self._spans
        while not self.ended and (span := timeline.next_span()):
            if self._picture_steps is not None:
                if timeline.step >= self._picture_due:  # where no query does, and an action follows
                    camera = self._suite.interface.observation.camera_names[0]
                    image = self._world.render(camera).copy()
                    self._pictures.append(Snapshot(step=timeline.step, camera=camera, image=image))
                    self._picture_due = timeline.step + self._picture_steps
                span = span._replace(steps=min(span.steps, self._picture_due - timeline.step))
            if history := self._seen.maxlen:
                unobserved = timeline.next_query - history - timeline.step
                if unobserved <= 0 and not (self._seen and self._seen[-1][0] == timeline.step):
                    self._remember(self._observed())
                span = span._replace(steps=min(span.steps, max(1, unobserved)))
            if self._watched:
                span = span._replace(steps=1)
            began = time.perf_counter()
            actions = self._actions(span)
            with contextlib.nullcontext() if self._acted else _before_the_policy_acts():
                advance = self._world.advance(actions.copy())
            if not isinstance(advance, AdvanceResult) or not 0 < advance.steps <= len(actions):
                raise UsageError(
                    f"advance() of the world returned {reprlib.repr(advance)} for {len(actions)} actions, "
                    f"but must return a sim_envs.world.AdvanceResult with 1 to {len(actions)} steps"
                )
            timeline.advance(span, advance.steps)
            self._success, self._failed = advance.success, advance.failed
            self._executed.extend(actions[: advance.steps])
            if advance.end_effector is not None:
                self._end_effector.extend(np.array(advance.end_effector)[1 if self._end_effector else 0 :])
            if spans and spans[-1].chunk == span.chunk:
                spans[-1] = spans[-1]._replace(steps=spans[-1].steps + advance.steps)
            else:
                spans.append(span._replace(steps=advance.steps))
            self.timings_ms["advance"] += 1e3 * (time.perf_counter() - began)
            if self._watched:
                self._read_truth()

    def _read_truth(self) -> None:
        """Record the truth at this control step, or why the world fails to provide it."""
        self.truths[self._timeline.step], error = read_truth(self._world)
        self.truth_error = self.truth_error or error

    def _actions(self, span: ActionSpan) -> np.ndarray:
        """The actions of a span, or the hold action at the state where holding began."""
        interface = self._suite.interface
        if span.chunk is not None:
            actions = self._planned(span)
            self._moved = self._acted = True
        else:
            held = any(part.hold is Hold.STATE for part in interface.action.channels)
            if self._moved and held:  # an older state would move the robot back
                self._state, self._moved = self._observed().state, False
            actions = np.tile(interface.hold_action(self._state, self._last), (span.steps, 1))
        self._last = actions[-1]
        return actions

    def delivered(self, texts: Sequence[Text], latency: Latency) -> list[Text]:
        """The texts finished in the query that were delivered before the episode ended."""
        timeline, timed = self._timeline, zip(texts, latency.texts_ms, strict=True)
        steps = [(text, timeline.step_after(after_ms)) for text, after_ms in timed]
        return [dataclasses.replace(text, step=step) for text, step in steps if step in self.truths]


class ActionError(ValueError):
    """The policy returned actions that cannot be executed."""


def validated_actions(
    actions: object, *, min_actions: int, width: int
) -> Float64[np.ndarray, "horizon action"]:
    """`actions` as an array that can be executed.

    Raises:
        BadAnswerError: They are not numbers.
        ActionError: Fewer than `min_actions` actions, another width, or numbers that are not finite.
    """
    array = numeric_actions(actions)
    if array.ndim != 2 or array.shape[1] != width or array.shape[0] < min_actions:
        raise ActionError(
            f"actions have shape {array.shape}; expected at least {min_actions} actions of {width} numbers"
        )
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ActionError(
            f"action {row} holds {array[row, column]} in dimension {column}; all must be finite"
        )
    return array


def averaged_channels(action: ActionSpec) -> Bool[np.ndarray, " action"]:
    """Mask of the action channels that are averaged when chunks are blended: all but the grippers'.

    Many robots take gripper channels as open/close commands (LIBERO reads only the sign), whose mean is
    neither.

    Raises:
        UsageError: The action has a rotation whose mean is not a rotation.
    """
    grippers = {gripper.name for gripper in action.grippers}
    arm = [part for part in action.channels if part.name not in grippers]
    small = action.rotation in (Rotation.AXIS_ANGLE, Rotation.EULER_XYZ) and all(
        part.motion is not Motion.ABSOLUTE for part in arm
    )
    if action.rotation is not Rotation.NONE and not small:
        raise UsageError(
            f"overlap 'blend' averages actions, and the mean of rotations ({action.rotation.value}) is not a "
            "rotation; choose skip or rtc"
        )
    return action.arm


def blend_chunks(
    old: Float64[np.ndarray, "left action"],
    new: Float64[np.ndarray, "horizon action"],
    *,
    late: int,
    channels: Bool[np.ndarray, " action"],
) -> Float64[np.ndarray, "horizon action"]:
    """Blend a new chunk with the rest of the old one.

    `old` begins with the action executed when the observation was taken; `late` of its actions are executed
    before the new chunk is available. Its weight falls linearly over the n actions that both have, from
    n / (n + 1) to 1 / (n + 1), in the averaged `channels`; the others are taken from the new chunk. Without
    delay that is returned unchanged.
    """
    end = min(len(old), len(new))
    if late == 0 or late >= end:
        return new
    weight = np.arange(end - late, 0, -1)[:, None] / (end - late + 1)
    mean = weight * old[late:end] + (1 - weight) * new[late:end]
    result = new.copy()
    result[late:end] = np.where(channels, mean, new[late:end])
    return result
