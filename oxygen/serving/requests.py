"""Requests for text, and the plan of an engine step that refers to them. Needs no JAX."""

import dataclasses
import enum
from collections.abc import Sequence

from oxygen.serving.sampling import GREEDY, Sampling


class RequestState(enum.StrEnum):
    """How far a request has come."""

    WAITING = "waiting"
    """It has a slot and has never had a row of the decode batch; it may still be dropped."""
    RUNNING = "running"
    """It has had a row. It keeps its slot until it ends, also in steps that leave it out."""
    FINISHED = "finished"
    DROPPED = "dropped"
    """Given up for want of a slot."""
    CANCELLED = "cancelled"
    """Given up because its robot's episode ended."""


@dataclasses.dataclass(kw_only=True, eq=False)
class Request:
    """One text being produced. The scheduler changes its state, the engine notes its times.

    Attributes:
        robot: The robot whose observation it speaks of, a row of the prefix.
        task: Index of its language task, below 2^16.
        query: The robot's query whose prefix it follows.
        suffix: Tokens that follow the prefix and ask for the text; at least one.
        sampling: How its tokens are chosen.
        seed: The robot's episode seed, 64 bits.
        ordinal: Counts the requests of its task in that query, below 2^16. The sampling key is a function of
            seed, query, task and ordinal alone.
        request_id: Counts the requests of the robot's episode.
        limit: Tokens after which it ends.
        stop_token: It ends with this token; below 0, only the limit ends it.
        order: Its place in the line for rows, the smallest first: the engine step it came in less its task's
            priority, then a serial number.
        slot: Its place in the KV pool; -1 before it has one.
        tokens: What has been written, the stop token included.
        state: How far it has come.
        requested_s: When its query came in, in seconds of the engine's clock.
        requested_busy_s: How long the engine had been busy by then, altogether.
        first_token_s: When its first token was known.
        finished_s: When its last token was known.
        latency_s: Time for which the engine was busy from its query to its end.
        after_s: The same from the query that it ended in.
        job: Index of its decode job among those of the engine step that it ended in.
        job_steps: Decode steps of that job after which its last token was known.
    """

    robot: int
    task: int
    query: int
    suffix: tuple[int, ...]
    sampling: Sampling = GREEDY
    seed: int = 0
    ordinal: int = 0
    request_id: int = 0
    limit: int = 1
    stop_token: int = -1
    order: tuple[int, int] = (0, 0)
    slot: int = -1
    tokens: list[int] = dataclasses.field(default_factory=list)
    state: RequestState = RequestState.WAITING
    requested_s: float = 0.0
    requested_busy_s: float = 0.0
    first_token_s: float = 0.0
    finished_s: float = 0.0
    latency_s: float = 0.0
    after_s: float = 0.0
    job: int = 0
    job_steps: int = 0

    @property
    def queue(self) -> tuple[int, int]:
        """The robot and the task, whose requests wait in one queue."""
        return self.robot, self.task

    @property
    def stopped(self) -> bool:
        """Whether its last token is the stop token."""
        return bool(self.tokens) and self.tokens[-1] == self.stop_token

    def is_over(self, tokens: Sequence[int]) -> bool:
        """Whether it has ended once it reads `tokens`."""
        return len(tokens) >= self.limit or self.stop_token in tokens

    def take(self, written: Sequence[int]) -> int:
        """Keep what was written up to the limit and the stop token; returns the number of new tokens."""
        before = len(self.tokens)
        if len(written) > before:
            tokens = list(written[: self.limit])
            over = self.stop_token in tokens
            self.tokens = tokens[: tokens.index(self.stop_token) + 1] if over else tokens
        return len(self.tokens) - before


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeJob:
    """New requests to fork, then decode steps over the same rows.

    Attributes:
        new: Requests to be put in their slots.
        rows: Requests to decode.
        own_prefill: Whether the new ones get a prefill of their own instead of the actions' one.
        batch: Least width of the decode batch. All jobs of a kind have the same, since a text may depend on
            it in the last bits of its scores.
        steps: Decode steps that the longest text still needs.
        to_the_end: Whether to decode until every row has ended; else the step's budget of tokens ends it.
    """

    new: tuple[Request, ...]
    rows: tuple[Request, ...]
    own_prefill: bool
    batch: int
    steps: int
    to_the_end: bool

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots of its rows."""
        return tuple(request.slot for request in self.rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeWork:
    """What a decode job computed. A latency profile prices it.

    Attributes:
        prefills: Prefills of its own, which came first.
        forks: Forks of a prefix into slots of the KV pool, which came next.
        steps: Decode steps.
        batch: Rows of each of them, padded ones included.
    """

    prefills: int
    forks: int
    steps: int
    batch: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepPlan:
    """The language of one engine step.

    Attributes:
        requested: New requests, those dropped at once included.
        dropped: Requests that found no slot, or had to give theirs up.
        jobs: What to run after the actions, in order.
    """

    requested: tuple[Request, ...]
    dropped: tuple[Request, ...]
    jobs: tuple[DecodeJob, ...]
