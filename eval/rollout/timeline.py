"""Schedules actions at control steps while the policy computes.

A query is issued at control step s. Its actions are available at step s + a, and the next query can start at
s + b; latencies are rounded up to whole control steps. Until the actions are available, the robot continues
the previous chunk (`continue`), and the next query is due `replan_steps` after this one was issued; or it
holds still (`hold`), as blocking clients do, and the next query is due `replan_steps` after the actions.

A new chunk starts after as many of its actions as old ones were executed since its observation; held steps do
not count (as in LeRobot's asynchronous client). Where no action is left, the robot holds still.
"""

from configs.latency import steps_in
from configs.schema import WhileWaiting
from eval.records.query_logs import ActionSpan


class Timeline:
    """The control steps of one episode.

    For each query: `issue`, `actions_after`, `next_span` and `advance` until there is no next span, then
    `busy_for` and again `next_span` and `advance`.

    Attributes:
        step: Control steps executed so far.
        query: Number of the last query; -1 before the first.
        issued: Control step at which it was issued.
        actions_at: Control step from which its actions can be executed.
        free_at: Control step from which the next query can be issued, as far as known.
        continued: Control steps since then that executed the previous chunk.
        held: Control steps since then in which the robot held still.
        skipped: Leading actions of its chunk that are skipped.
    """

    def __init__(
        self, *, control_hz: float, replan_steps: int, while_waiting: WhileWaiting, max_steps: int
    ) -> None:
        """Start at control step 0, without a chunk.

        Args:
            control_hz: Control steps per simulated second.
            replan_steps: Minimum control steps between two queries; 1 means as soon as the policy is free.
            while_waiting: What the robot does until actions are available.
            max_steps: Step limit of the episode, held steps included.
        """
        self._control_hz = control_hz
        self._replan_steps = replan_steps
        self._holds = while_waiting == "hold"
        self._max_steps = max_steps
        self._chunk: int | None = None
        self._cursor = self._horizon = 0  # next action of the current chunk, and its length
        self._coming = 0  # length of the chunk that is not yet available
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
        """The rest of the current chunk; None if it is used up."""
        left = self._horizon - self._cursor
        return ActionSpan(chunk=self._chunk, first=self._cursor, steps=left) if left > 0 else None

    def issue(self) -> None:
        """Issue a query now."""
        self.query += 1
        self.issued = self.actions_at = self.free_at = self.step
        self.continued = self.held = self.skipped = 0

    def actions_after(self, milliseconds: float, *, horizon: int) -> None:
        """Set when the actions of the query are available.

        Args:
            milliseconds: Simulated time since the query was issued.
            horizon: Number of actions.
        """
        self.actions_at = self.free_at = self.issued + steps_in(milliseconds, self._control_hz)
        self._coming = horizon
        self._take_chunk()

    def busy_for(self, milliseconds: float) -> None:
        """Set how long the policy is busy with the query; at least until its actions are available."""
        self.free_at = max(self.actions_at, self.step_after(milliseconds))

    def step_after(self, milliseconds: float) -> int:
        """The control step `milliseconds` after the query was issued."""
        return self.issued + steps_in(milliseconds, self._control_hz)

    def next_span(self) -> ActionSpan | None:
        """The next actions to execute; None if the next query is due or the episode is over."""
        since = self.actions_at if self._holds else self.issued
        next_query = max(since + self._replan_steps, self.free_at)
        steps = min(next_query, self._max_steps) - self.step
        if self._coming:
            steps = min(steps, self.actions_at - self.step)
        if steps <= 0:
            return None
        left = 0 if self._coming and self._holds else self._horizon - self._cursor
        if left > 0:
            return ActionSpan(chunk=self._chunk, first=self._cursor, steps=min(left, steps))
        return ActionSpan(chunk=None, first=0, steps=steps)

    def advance(self, span: ActionSpan, steps: int) -> None:
        """Record that `steps` control steps of `next_span` were executed."""
        self.step += steps
        if span.chunk is None:
            self.held += steps
        else:
            self._cursor += steps
            self.continued += steps if self._coming else 0
        self._take_chunk()

    def _take_chunk(self) -> None:
        """Switch to the chunk of the last query once it is available."""
        if self._coming and self.step >= self.actions_at:
            self.skipped = min(self.continued, self._coming)
            self._chunk, self._cursor, self._horizon = self.query, self.skipped, self._coming
            self._coming = 0
