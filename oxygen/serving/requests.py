"""Text requests and the plan of an engine step. Needs no JAX."""

import dataclasses
import enum
import math
from collections.abc import Sequence

from configs.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling parameters of a request.

    Attributes:
        temperature: 0 is greedy; else tokens are sampled from the softmax of logits / temperature.
        top_k: Sample among this many of the most likely tokens; None samples among all.
    """

    temperature: float = 0.0
    top_k: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature is {self.temperature}; it must be 0 (the best token) or more")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top_k is {self.top_k}; it must be at least 1, or left out to draw among all")

    @property
    def greedy(self) -> bool:
        """Whether decoding is greedy."""
        return self.temperature == 0


GREEDY = Sampling()


class RequestState(enum.StrEnum):
    """State of a request."""

    WAITING = "waiting"
    """Has a slot, but has never had a row of the decode batch; may still be dropped."""
    RUNNING = "running"
    """Has had a row. Keeps its slot until it finishes, also in steps without a row."""
    FINISHED = "finished"
    DROPPED = "dropped"
    """Dropped because no slot was free."""
    CANCELLED = "cancelled"
    """Cancelled because its robot's episode ended."""


@dataclasses.dataclass(kw_only=True, eq=False)
class Request:
    """One text being decoded. The scheduler sets its state, the engine its times.

    Attributes:
        robot: The robot whose observation it describes; its row of the prefix.
        task: Index of its language task, below 2^16.
        query: The robot's query whose prefix it follows.
        suffix: Prompt tokens that follow the prefix; at least one.
        sampling: Sampling parameters.
        seed: The robot's episode seed, 64 bits.
        ordinal: Its index among the task's requests in that query, below 2^16. The sampling key is a function
            of seed, query, task and ordinal alone.
        request_id: Its index among the requests of the robot's episode.
        limit: Maximal number of tokens.
        stop_token: Ends the text; if negative, only the limit does.
        order: Sort key in the queue for rows: arrival step minus priority, then a serial number.
        slot: Its slot of the KV pool; -1 if it has none.
        tokens: Decoded tokens, including the stop token.
        state: Its state.
        requested_s: When its query arrived, in seconds of the engine's clock.
        requested_busy_s: Total time for which the engine had been busy by then.
        first_token_s: When its first token was known.
        finished_s: When its last token was known.
        latency_s: End-to-end latency in time that the engine was busy.
        after_s: The part of it since the query in which it finished.
        job: Index of its decode job in the engine step in which it finished.
        job_steps: Decode steps of that job until its last token.
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
        """Robot and task, whose requests form one queue."""
        return self.robot, self.task

    @property
    def stopped(self) -> bool:
        """Whether its last token is the stop token."""
        return bool(self.tokens) and self.tokens[-1] == self.stop_token

    def is_complete(self, tokens: Sequence[int]) -> bool:
        """Whether `tokens` is a complete text."""
        return len(tokens) >= self.limit or self.stop_token in tokens

    def take(self, written: Sequence[int]) -> int:
        """Update the tokens, cut at the limit and the stop token; returns the number of new ones."""
        before = len(self.tokens)
        if len(written) > before:
            tokens = list(written[: self.limit])
            over = self.stop_token in tokens
            self.tokens = tokens[: tokens.index(self.stop_token) + 1] if over else tokens
        return len(self.tokens) - before


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeJob:
    """Forks of new requests, then decode steps over the same rows.

    Attributes:
        new: Requests to fork into their slots.
        rows: Requests to decode.
        own_prefill: Whether new requests, if any, get their own prefill instead of the actions' one.
        batch: Minimal size of the decode batch. Fixed for all jobs of a mode, since logits depend on it in
            their last bits.
        steps: Decode steps that the longest text still needs.
        to_the_end: Whether to decode until every row is complete, rather than for the step's token budget.
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
    """The work of a decode job, from which latency profiles compute its time.

    Attributes:
        prefills: Its own prefills, which come first.
        forks: Forks of a prefix into slots of the KV pool, which come next.
        steps: Decode steps.
        batch: Their batch size, padding included.
    """

    prefills: int
    forks: int
    steps: int
    batch: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepPlan:
    """The text requests and decode jobs of one engine step.

    Attributes:
        requested: New requests, including those dropped on arrival.
        dropped: Requests without a slot, or replaced by newer ones.
        jobs: Decode jobs to run after the actions, in order.
    """

    requested: tuple[Request, ...]
    dropped: tuple[Request, ...]
    jobs: tuple[DecodeJob, ...]
