"""Language tasks: the kinds of text requested beside actions, and when their requests arrive.

Arrival processes are deterministic functions of the episode and the query.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from contracts.errors import UsageError
from contracts.prompt import PromptField
from oxygen.robots.tokenizer import Tokenizer
from oxygen.serving.requests import GREEDY, Sampling

_MAX_PER_QUERY = 2**16
"""Maximal requests of a task in one query: their sampling keys have 16 bits for the ordinal."""


def _at_least(bound: int, kind: str, /, **values: int) -> None:
    for name, value in values.items():
        if value < bound:
            raise UsageError(f"{kind}: {name} is {value}; it must be at least {bound}")


@runtime_checkable
class Arrivals(Protocol):
    """When texts of one language task are requested, and with which token limits."""

    @property
    def longest(self) -> int | None:
        """The largest token limit that `due` returns; None if it returns none."""

    def due(self, episode: int, query: int) -> Sequence[int | None]:
        """Token limits of the requests that arrive in a query; None means the task's `max_tokens`.

        `episode` is the seed of the query's episode.
        """

    def within(self, queries: int) -> int:
        """Capacity to provide for the requests of this many successive queries."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Burst:
    """`n` requests at once in queries 0, every, 2·every, …"""

    n: int
    every: int
    longest = None

    def __post_init__(self) -> None:
        _at_least(1, "Burst", n=self.n, every=self.every)
        if self.n > _MAX_PER_QUERY:
            raise UsageError(f"Burst: n is {self.n}; it must be at most {_MAX_PER_QUERY}")

    def due(self, episode: int, query: int) -> Sequence[int | None]:
        """See `Arrivals`."""
        del episode
        return () if query % self.every else (None,) * self.n

    def within(self, queries: int) -> int:
        """See `Arrivals`."""
        return self.n * math.ceil(queries / self.every)


@dataclasses.dataclass(frozen=True)
class EveryN:
    """One request in queries 0, n, 2n, …"""

    n: int = 1
    longest = None

    def __post_init__(self) -> None:
        _at_least(1, "EveryN", n=self.n)

    def due(self, episode: int, query: int) -> Sequence[int | None]:
        """See `Arrivals`."""
        del episode
        return () if query % self.n else (None,)

    def within(self, queries: int) -> int:
        """See `Arrivals`."""
        return math.ceil(queries / self.n)


EVERY_QUERY = EveryN(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Poisson:
    """A Poisson process with a mean of `rate` requests per query."""

    rate: float
    seed: int
    longest = None

    def __post_init__(self) -> None:
        _at_least(0, "Poisson", seed=self.seed)
        if not 0 < self.rate <= _MAX_PER_QUERY / 2:
            raise UsageError(
                f"Poisson: rate is {self.rate}; it must be above 0 and at most {_MAX_PER_QUERY // 2}"
            )

    def due(self, episode: int, query: int) -> Sequence[int | None]:
        """See `Arrivals`."""
        return (None,) * int(np.random.default_rng((self.seed, episode, query, 0)).poisson(self.rate))

    def within(self, queries: int) -> int:
        """Three standard deviations above the mean, exceeded about once in a thousand times."""
        mean = self.rate * queries
        return math.ceil(mean + 3 * math.sqrt(mean))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomLength:
    """Wraps other arrivals; each request gets a random limit of `min_tokens` to `max_tokens` tokens."""

    arrivals: Arrivals
    min_tokens: int
    max_tokens: int
    seed: int

    def __post_init__(self) -> None:
        _at_least(0, "RandomLength", seed=self.seed)
        _at_least(1, "RandomLength", min_tokens=self.min_tokens)
        _at_least(self.min_tokens, "RandomLength", max_tokens=self.max_tokens)

    @property
    def longest(self) -> int:
        """See `Arrivals`."""
        return self.max_tokens

    def due(self, episode: int, query: int) -> Sequence[int | None]:
        """See `Arrivals`."""
        count = len(self.arrivals.due(episode, query))
        random = np.random.default_rng((self.seed, episode, query, 1))
        sampled = random.integers(self.min_tokens, self.max_tokens, count, endpoint=True)
        return tuple(int(limit) for limit in sampled)

    def within(self, queries: int) -> int:
        """See `Arrivals`."""
        return self.arrivals.within(queries)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageTask:
    """A kind of text requested beside actions.

    Attributes:
        name: Unique among a policy's tasks, e.g. `narration`.
        prompt: The suffix that follows the prefix and asks for the text.
        arrivals: When a text is requested; in every query by default.
        max_tokens: Maximal length of a text; at least that of its arrivals.
        priority: Engine steps of head start when not all requests fit in one batch: a request precedes
            those of lower priority that are older by at most the difference.
        sampling: Sampling parameters; greedy by default.
        stop: A single token that ends the text; by default the vocabulary's end token.
        feedback: Fields of later prompts that hold its texts.
        suffix: The prompt's tokens; at least one, set by `tokenized`.
        stop_token: Ends a text; if negative, only the limit does. Likewise.
    """

    name: str
    prompt: str
    arrivals: Arrivals = EVERY_QUERY
    max_tokens: int
    priority: int = 0
    sampling: Sampling = GREEDY
    stop: str | None = None
    feedback: tuple[PromptField, ...] = ()
    suffix: tuple[int, ...] = ()
    stop_token: int = -1

    def __post_init__(self) -> None:
        if self.max_tokens < max(1, self.arrivals.longest or 0):
            raise UsageError(
                f"language task {self.name!r}: max_tokens is {self.max_tokens}; give at least "
                f"{max(1, self.arrivals.longest or 0)}, the tokens that a text may have"
            )


def tokenized(task: LanguageTask, tokenizer: Tokenizer) -> LanguageTask:
    """The language task with its prompt and stop in tokens; refuses a prompt without any."""
    suffix = tuple(tokenizer.encode(task.prompt))
    if not suffix:
        raise UsageError(f"language task {task.name!r}: prompt {task.prompt!r} has no tokens")
    return dataclasses.replace(task, suffix=suffix, stop_token=stop_token(task, tokenizer))


def stop_token(task: LanguageTask, tokenizer: Tokenizer) -> int:
    """The token that ends the task's texts; negative if there is none. Refuses a `stop` of several."""
    if task.stop is None:
        return tokenizer.eos
    tokens = tokenizer.encode(task.stop)
    if len(tokens) != 1:
        parts = ", ".join(repr(tokenizer.decode([token])) for token in tokens) or "none"
        raise UsageError(
            f"language task {task.name!r}: stop {task.stop!r} is {len(tokens)} tokens ({parts}); give a "
            "single one, or leave it out for the vocabulary's end token"
        )
    return tokens[0]
