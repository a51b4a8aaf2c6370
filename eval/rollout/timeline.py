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
from eval.records.query_logs import ActionSpan, QueryRecord


class Timeline:
    """The control steps of one episode.

    For each query: `issue`, `actions_after`, `next_span` and `advance` until there is no next span, then
    `busy_for` and again `next_span` and `advance`.

    Attributes:
        step: Control steps executed so far.
        query: Record of the last query; number -1 before the first. Its `step`, `steps`, `actions_step`,
            `free_step`, `continued`, `held` and `skipped` are kept up to date.
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
        self.query = QueryRecord(index=-1)

    @property
    def is_over(self) -> bool:
        """Whether the step limit is reached."""
        return self.step >= self._max_steps

    @property
    def rest(self) -> ActionSpan | None:
        """The rest of the current chunk; None if it is used up."""
        left = self._horizon - self._cursor
        return ActionSpan(chunk=self._chunk, first=self._cursor, steps=left) if left > 0 else None

    def issue(self) -> QueryRecord:
        """Issue a query now; returns its record."""
        now = self.step
        self.query = QueryRecord(index=self.query.index + 1, step=now, actions_step=now, free_step=now)
        return self.query

    def actions_after(self, milliseconds: float, *, horizon: int) -> None:
        """Set the simulated time until the actions of the query, `horizon` in number, are available."""
        self.query.actions_step = self.query.free_step = self.step_after(milliseconds)
        self._coming = horizon
        self._take_chunk()

    def busy_for(self, milliseconds: float) -> None:
        """Set how long the policy is busy with the query; at least until its actions are available."""
        self.query.free_step = max(self.query.actions_step, self.step_after(milliseconds))

    def step_after(self, milliseconds: float) -> int:
        """The control step `milliseconds` after the query was issued."""
        return self.query.step + steps_in(milliseconds, self._control_hz)

    def next_span(self) -> ActionSpan | None:
        """The next actions to execute; None if the next query is due or the episode is over."""
        since = self.query.actions_step if self._holds else self.query.step
        next_query = max(since + self._replan_steps, self.query.free_step)
        steps = min(next_query, self._max_steps) - self.step
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
        self.step += steps
        self.query.steps += steps
        if span.chunk is None:
            self.query.held += steps
        else:
            self._cursor += steps
            self.query.continued += steps if self._coming else 0
        self._take_chunk()

    def _take_chunk(self) -> None:
        """Switch to the chunk of the last query once it is available."""
        query = self.query
        if self._coming and self.step >= query.actions_step:
            query.skipped = min(query.continued, self._coming)
            self._chunk, self._cursor, self._horizon = query.index, query.skipped, self._coming
            self._coming = 0
