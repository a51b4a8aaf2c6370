"""What is executed at every control step while a policy computes: arithmetic over integers and milliseconds.

A query is issued at control step s. Its actions come after a latency, at step s + a, and the next query can
start once the policy is no longer busy with this one, at s + b; both are rounded up to whole control steps.
Until the actions have come, the robot either goes on with the chunk before (`continue`) or is held still
(`hold`). A new chunk begins as many actions late as the chunk before went on for since the observation: a
step in which the robot was held overtakes nothing (LeRobot's asynchronous client counts likewise). Where no
action is left, the robot is held.
"""

import dataclasses
import enum
import math

_ROUNDING = 1e-9
"""What sums of milliseconds may miss a whole control step by."""


class Waiting(enum.StrEnum):
    """What the robot does until the actions of a query have come."""

    CONTINUE = "continue"
    """It goes on with the chunk before. The next query is due `replan_steps` after this one was issued."""
    HOLD = "hold"
    """It is held still, as blocking clients do. The next query is due `replan_steps` after the actions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionSpan:
    """Control steps in a row whose actions have one source.

    Attributes:
        chunk: The query whose actions are executed; None where the robot is held still.
        first: Index of the first of them in its chunk.
        steps: Control steps.
    """

    chunk: int | None
    first: int
    steps: int


def steps_in(milliseconds: float, control_hz: float) -> int:
    """Control steps until something that takes `milliseconds` is over, rounded up."""
    return max(0, math.ceil(milliseconds / 1e3 * control_hz - _ROUNDING))


class Timeline:
    """The control steps of one episode.

    For each query: `issue`, `actions_after`, then `next_span` and `advance` until there is no next span; then
    `busy_for`, and the same again.

    Attributes:
        step: Control steps executed so far.
        query: Number of the query that was issued last; -1 before the first.
        issued: Control step at which it was issued.
        actions_at: Control step from which its actions can be executed.
        free_at: Control step from which the next query can be issued, as far as is known.
        continued: Control steps since it was issued in which the chunk before went on.
        held: Control steps since it was issued in which the robot was held still.
        skipped: Actions at the beginning of its chunk that are left out.
    """

    def __init__(self, *, control_hz: float, replan_steps: int, waiting: Waiting, max_steps: int) -> None:
        """Begin at control step 0, without a chunk.

        Args:
            control_hz: Control steps per simulated second.
            replan_steps: Control steps between two queries, at least; 1 is as soon as the policy is free.
            waiting: What happens until actions have come.
            max_steps: The episode ends after so many control steps, held ones included.
        """
        self._control_hz = control_hz
        self._replan_steps = replan_steps
        self._waiting = waiting
        self._max_steps = max_steps
        self._chunk: int | None = None
        self._cursor = self._horizon = 0  # the next action of the chunk that is executed, and its length
        self._coming = 0  # the length of the chunk that has not come yet
        self.step = 0
        self.query = -1
        self.issued = self.actions_at = self.free_at = 0
        self.continued = self.held = self.skipped = 0

    @property
    def is_over(self) -> bool:
        """Whether the step limit is reached."""
        return self.step >= self._max_steps

    @property
    def rest(self) -> ActionSpan | None:
        """What is left of the chunk that is executed; None if nothing is."""
        left = self._horizon - self._cursor
        return ActionSpan(chunk=self._chunk, first=self._cursor, steps=left) if left > 0 else None

    def issue(self) -> None:
        """Issue a query now."""
        self.query += 1
        self.issued = self.actions_at = self.free_at = self.step
        self.continued = self.held = self.skipped = 0

    def actions_after(self, milliseconds: float, *, horizon: int) -> None:
        """The actions of the query come so long after it was issued.

        Args:
            milliseconds: Simulated time.
            horizon: How many there are.
        """
        self.actions_at = self.free_at = self.issued + steps_in(milliseconds, self._control_hz)
        self._coming = horizon
        self._take_chunk()

    def busy_for(self, milliseconds: float) -> None:
        """The policy is busy with the query for so long, but until its actions have come at least."""
        self.free_at = max(self.actions_at, self.step_after(milliseconds))

    def step_after(self, milliseconds: float) -> int:
        """The control step at which something is known that took so long since the query was issued."""
        return self.issued + steps_in(milliseconds, self._control_hz)

    def next_span(self) -> ActionSpan | None:
        """What is executed next; None if the next query is due, or the episode is over."""
        steps = min(self._next_query, self._max_steps) - self.step
        if self._coming:
            steps = min(steps, self.actions_at - self.step)
        if steps <= 0:
            return None
        left = 0 if self._coming and self._waiting is Waiting.HOLD else self._horizon - self._cursor
        if left > 0:
            return ActionSpan(chunk=self._chunk, first=self._cursor, steps=min(left, steps))
        return ActionSpan(chunk=None, first=0, steps=steps)

    def advance(self, span: ActionSpan, steps: int) -> None:
        """So many control steps of what `next_span` returned were executed."""
        self.step += steps
        if span.chunk is None:
            self.held += steps
        else:
            self._cursor += steps
            self.continued += steps if self._coming else 0
        self._take_chunk()

    @property
    def _next_query(self) -> int:
        since = self.actions_at if self._waiting is Waiting.HOLD else self.issued
        return max(since + self._replan_steps, self.free_at)

    def _take_chunk(self) -> None:
        """Change over to the chunk of the last query once it has come."""
        if self._coming and self.step >= self.actions_at:
            self.skipped = min(self.continued, self._coming)
            self._chunk, self._cursor, self._horizon = self.query, self.skipped, self._coming
            self._coming = 0
