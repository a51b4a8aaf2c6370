"""Executes the actions of a timeline in a world; validates action chunks and blends overlapping ones."""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64

from configs.errors import UsageError
from configs.interface import ActionSpec, Hold, Motion, Rotation
from configs.latency import Latency
from eval.policies.base import BadAnswerError
from eval.records.query_logs import ActionSpan, Snapshot
from eval.rollout.timeline import Timeline
from oxygen.policy.reply import Text
from sim_envs.suite import Suite
from sim_envs.world import Observation, World


class Execution:
    """Executes the actions of a timeline, and adds what happens to the record of its last query.

    Attributes:
        advance_ms: Wall time of physics since the query was issued.
    """

    def __init__(
        self, world: World, suite: Suite, timeline: Timeline, *, watched: bool, picture_steps: int | None
    ) -> None:
        """Begin an episode in a world with its task loaded.

        Args:
            world: The world.
            suite: Its interface defines the hold action.
            timeline: When actions are executed.
            watched: Whether to read the world's truth at every control step, at which texts may be delivered.
            picture_steps: Control steps between pictures of the first camera; None for no pictures.
        """
        self._world = world
        self._suite = suite
        self._timeline = timeline
        self._watched = watched
        self._picture_steps = picture_steps
        self._state = np.zeros(suite.interface.observation.state_size)
        self._moved = True  # since the state was read
        self._chunks: dict[int, np.ndarray] = {}
        self._last: np.ndarray | None = None
        self._picture_due = 0
        self.advance_ms = 0.0

    @property
    def ended(self) -> bool:
        """Whether the world has ended the episode."""
        return self._timeline.query.success or self._timeline.query.failed

    def begin_query(self, observation: Observation) -> None:
        """A query was issued on this observation."""
        if self._moved:
            self._state, self._moved = observation.state, False
        self._picture_due = self._timeline.step + (self._picture_steps or 0)
        self.advance_ms = 0.0

    def add_chunk(self, chunk: Float64[np.ndarray, "horizon action"], rest: ActionSpan | None) -> None:
        """Add the actions of the query; `rest` is that of the previous chunk if it is to be blended in."""
        query, given = self._timeline.query, chunk
        self._chunks = {number: old for number, old in self._chunks.items() if number == query.index - 1}
        if rest is not None and rest.chunk is not None:
            chunk = blend_chunks(
                self._chunks[rest.chunk][rest.first :],
                given,
                late=min(query.actions_step - query.step, rest.steps),
                channels=averaged_channels(self._suite.interface.action),
            )
        query.blended = int((chunk != given).any(axis=1).sum())
        self._chunks[query.index] = chunk

    def run(self) -> None:
        """Execute all actions that are due, up to success or failure."""
        timeline, query = self._timeline, self._timeline.query
        while not self.ended and (span := timeline.next_span()):
            if self._picture_steps is not None:
                if timeline.step >= self._picture_due:  # where no query does, and an action follows
                    camera = self._suite.interface.observation.camera_names[0]
                    image = self._world.render(camera)
                    query.pictures.append(Snapshot(step=timeline.step, camera=camera, image=image))
                    self._picture_due = timeline.step + self._picture_steps
                span = span._replace(steps=min(span.steps, self._picture_due - timeline.step))
            if self._watched:
                span = span._replace(steps=1)
            began = time.perf_counter()
            actions = self._actions(span)
            advance = self._world.advance(actions)
            timeline.advance(span, advance.steps)
            query.success, query.failed = advance.success, advance.failed
            query.executed.extend(actions[: advance.steps])
            if advance.end_effector is not None:
                query.end_effector.extend(advance.end_effector[1 if query.end_effector else 0 :])
            if query.spans and query.spans[-1].chunk == span.chunk:
                query.spans[-1] = query.spans[-1]._replace(steps=query.spans[-1].steps + advance.steps)
            else:
                query.spans.append(span._replace(steps=advance.steps))
            self.advance_ms += 1e3 * (time.perf_counter() - began)
            if self._watched:
                query.truths[timeline.step] = self._world.truth()

    def _actions(self, span: ActionSpan) -> np.ndarray:
        """The actions of a span, or the hold action at the state where holding began."""
        interface = self._suite.interface
        if span.chunk is not None:
            actions = self._chunks[span.chunk][span.first : span.first + span.steps]
            self._moved = True
        else:
            held = any(part.hold is Hold.STATE for part in interface.action.channels)
            if self._moved and held:  # an older state would move the robot back
                self._state, self._moved = self._world.observe().state, False
            actions = np.tile(interface.hold_action(self._state, self._last), (span.steps, 1))
        self._last = actions[-1]
        return actions

    def delivered(self, texts: Sequence[Text], latency: Latency) -> list[Text]:
        """The texts finished in the query that were delivered before the episode ended."""
        timeline, timed = self._timeline, zip(texts, latency.texts_ms, strict=True)
        steps = [(text, timeline.step_after(after_ms)) for text, after_ms in timed]
        return [dataclasses.replace(text, step=step) for text, step in steps if step in timeline.query.truths]


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
    try:
        array = np.asarray(actions).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError) as error:
        what = f"{type(actions).__name__} ({error})"
        raise BadAnswerError(f"the policy's actions are {what}; give numbers [horizon, action]") from error
    if array.ndim != 2 or array.shape[1] != width or array.shape[0] < min_actions:
        raise ActionError(
            f"actions have shape {array.shape}: needed are at least {min_actions} actions of {width} numbers"
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

    The weight of the old chunk falls linearly over the n actions that both have, from n / (n + 1) to
    1 / (n + 1). Without delay the new chunk is returned unchanged.

    Args:
        old: The rest of the old chunk, from the action executed when the observation was taken.
        new: The new chunk.
        late: Actions of the old chunk executed before the new one is available.
        channels: Mask of averaged channels; the others are taken from the new chunk.
    """
    end = min(len(old), len(new))
    if late == 0 or late >= end:
        return new
    weight = np.arange(end - late, 0, -1)[:, None] / (end - late + 1)
    mean = weight * old[late:end] + (1 - weight) * new[late:end]
    result = new.copy()
    result[late:end] = np.where(channels, mean, new[late:end])
    return result
