"""Text requests and the plan of an engine step. Needs no JAX."""

import dataclasses
import enum
import math
from collections.abc import Sequence

from contracts.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling parameters of a request."""

    temperature: float = 0.0  # 0 is greedy; else tokens are sampled from the softmax of logits / temperature
    top_k: int | None = None  # sample among this many of the most likely tokens; None samples among all

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
    """Cancelled because its episode ended."""


@dataclasses.dataclass(kw_only=True, eq=False)
class Request:
    """One text being decoded. The scheduler sets its state, the engine its times."""

    robot: int  # the robot whose observation it describes; its row of the prefix
    task: int  # index of its language task, below 2^16
    query: int  # the robot's query whose prefix it follows
    suffix: tuple[int, ...]  # prompt tokens that follow the prefix; at least one
    sampling: Sampling = GREEDY  # sampling parameters
    seed: int = 0  # the robot's episode seed, 64 bits
    # Its index among the task's requests in that query, below 2^16. The sampling key is a function of seed,
    # query, task and ordinal alone.
    ordinal: int = 0
    request_id: int = 0  # its index among the requests of the robot's episode
    limit: int = 1  # maximal number of tokens
    stop_token: int = -1  # ends the text; if negative, only the limit does
    # Sort key in the queue for rows: arrival step minus priority, then a serial number.
    order: tuple[int, int] = (0, 0)
    slot: int = -1  # its slot of the KV pool; -1 if it has none
    tokens: list[int] = dataclasses.field(default_factory=list)  # decoded tokens, including the stop token
    state: RequestState = RequestState.WAITING
    requested_s: float = 0.0  # when its query arrived, in seconds of the engine's clock
    requested_busy_s: float = 0.0  # total time for which the engine had been busy by then
    first_token_s: float = 0.0  # when its first token was known
    finished_s: float = 0.0  # when its last token was known
    latency_s: float = 0.0  # end-to-end latency in time that the engine was busy
    after_s: float = 0.0  # the part of it since the query in which it finished
    job: int = 0  # index of its decode job in the plan of the step in which it finished
    job_steps: int = 0  # decode steps of that job until its last token

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
    """Forks of new requests, then decode steps over the same rows."""

    new: tuple[Request, ...]  # requests to fork into their slots
    rows: tuple[Request, ...]  # requests to decode
    own_prefill: bool  # whether new requests, if any, get their own prefill instead of the actions' one
    # Minimal size of the decode batch. Fixed for all jobs of a mode, since logits depend on it in their last
    # bits.
    batch: int
    steps: int  # decode steps that the longest text still needs
    to_the_end: bool  # whether to decode until every row is complete, rather than for the step's token budget

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots of its rows."""
        return tuple(request.slot for request in self.rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepPlan:
    """The text requests and decode jobs of one robot in an engine step."""

    requested: tuple[Request, ...]  # new requests, including those dropped on arrival
    dropped: tuple[Request, ...]  # requests without a slot, or replaced by newer ones
    jobs: tuple[DecodeJob, ...]  # decode jobs to run after the actions, in order
