"""Arrival processes of text requests: deterministic functions of robot and query."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from configs.errors import UsageError

_MAX_PER_QUERY = 2**16
"""Maximal requests of a task in one query of a robot: their sampling keys have 16 bits for the ordinal."""


def _rng(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def _at_least(bound: int, kind: str, /, **values: int) -> None:
    for name, value in values.items():
        if value < bound:
            raise UsageError(f"{kind}: {name} is {value}; it must be at least {bound}")


@runtime_checkable
class Arrivals(Protocol):
    """When a robot requests texts of one language task, and with which token limits."""

    @property
    def longest(self) -> int | None:
        """The largest token limit that `due` returns; None if it returns none."""

    def due(self, robot: int, query: int) -> Sequence[int | None]:
        """Token limits of the requests that arrive in a robot's query; None means the task's `max_tokens`."""

    def within(self, queries: int) -> int:
        """Capacity to provide for the requests of one robot in this many successive queries."""


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

    def due(self, robot: int, query: int) -> Sequence[int | None]:
        """See `Arrivals`."""
        del robot
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

    def due(self, robot: int, query: int) -> Sequence[int | None]:
        """See `Arrivals`."""
        del robot
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

    def due(self, robot: int, query: int) -> Sequence[int | None]:
        """See `Arrivals`."""
        return (None,) * int(_rng(self.seed, robot, query, 0).poisson(self.rate))

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

    def due(self, robot: int, query: int) -> Sequence[int | None]:
        """See `Arrivals`."""
        count = len(self.arrivals.due(robot, query))
        random = _rng(self.seed, robot, query, 1)
        sampled = random.integers(self.min_tokens, self.max_tokens, count, endpoint=True)
        return tuple(int(limit) for limit in sampled)

    def within(self, queries: int) -> int:
        """See `Arrivals`."""
        return self.arrivals.within(queries)
