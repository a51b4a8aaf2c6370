"""Workloads with their arrivals, the configurations that do each of them, and the texts that run at once."""

import dataclasses
import functools
import itertools
import math

from contracts.errors import UsageError, pluralize
from contracts.mode import BUDGETED, Mode
from oxygen.serving.language import Arrivals, Burst, EveryN, Poisson, RandomLength

_SEED = 7


@functools.cache
def parse_arrivals(text: str) -> Arrivals:
    """The arrivals that `text` describes.

    `every:2` is a text in every second query, `burst:4:8` four texts in every eighth, `poisson:0.5` one in
    two queries on average. `@8-30` after any of them draws each text's length from 8 to 30 tokens. Refuses
    anything else.
    """
    body, at, lengths = text.partition("@")
    kind, *numbers = body.split(":")
    arrivals: Arrivals
    try:
        match kind, numbers:
            case "every", [n]:
                arrivals = EveryN(n=int(n))
            case "burst", [n, every]:
                arrivals = Burst(n=int(n), every=int(every))
            case "poisson", [rate]:
                arrivals = Poisson(rate=float(rate), seed=_SEED)
            case _:
                raise ValueError(kind)
        if at:
            least, most = map(int, lengths.split("-"))
            arrivals = RandomLength(arrivals=arrivals, min_tokens=least, max_tokens=most, seed=_SEED)
    except UsageError as error:
        raise UsageError(f"arrivals {text!r}: {error}") from None
    except ValueError:
        raise UsageError(
            f"arrivals {text!r}: write every:QUERIES, burst:TEXTS:QUERIES or poisson:TEXTS_PER_QUERY, with "
            "lengths as in every:1@8-30"
        ) from None
    return arrivals


OFF = "off"
"""A configuration without an adapter."""
ADAPTERS = (OFF, "exact", "published")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """The work that all configurations do alike, and how often it is measured."""

    denoise_steps: int  # euler steps of the flow
    text_tokens: int  # tokens of a text, or of the longest one if lengths are random
    robots: int = 1  # observations in a query
    arrivals: str = "every:1"  # when texts are requested, for every robot, as `parse_arrivals` reads it
    repetitions: int = 1  # runs of each configuration
    queries: int = 1  # queries counted in a run; one more precedes them
    # Queries of each configuration before the first run: enough to fill the longest pipeline.
    warm_up_queries: int = 0

    def __post_init__(self) -> None:
        longest = parse_arrivals(self.arrivals).longest or 0
        if longest > self.text_tokens:
            raise UsageError(
                f"arrivals {self.arrivals!r} request up to {longest} tokens; text tokens: {self.text_tokens}"
            )

    @property
    def queries_per_run(self) -> int:
        """Queries in a run, the uncounted first one included."""
        return 1 + self.queries

    @property
    def total_queries(self) -> int:
        """Queries of one configuration, warm-up included."""
        return self.warm_up_queries + self.repetitions * self.queries_per_run

    def lengths(self, robot: int, query: int) -> list[int]:
        """Tokens of each text requested for a robot in a query; its number is its episode's seed."""
        due = parse_arrivals(self.arrivals).due(robot, query)
        return [self.text_tokens if n is None else n for n in due]

    @property
    def work(self) -> str:
        """Describes what is done, but not how often it is measured."""
        robots = pluralize(self.robots, "robot")
        return f"N = {self.text_tokens}, {self.arrivals}, {self.denoise_steps} denoise steps, {robots}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchConfiguration:
    """A mode and its token budget."""

    mode: Mode  # how language is scheduled
    # Decode steps of each text in a frame of modes `unified` and `interleaved`, k; None in other modes, and
    # by deadline.
    tokens_per_frame: int | None = None
    # Deadline of a frame in mode `unified`, instead of `tokens_per_frame`; milliseconds.
    deadline_ms: float | None = None
    adapter: str = OFF  # the mask of a suffix adapter that texts use; `off` for none

    @property
    def min_decode_steps(self) -> int:
        """The fewest decode steps of a text in a frame; a deadline guarantees one."""
        return self.tokens_per_frame or 1

    @property
    def label(self) -> str:
        """The mode, its token budget, and the adapter, if any."""
        budget = "" if self.tokens_per_frame is None else f", k = {self.tokens_per_frame}"
        if self.deadline_ms is not None:
            budget = f", {self.deadline_ms:g} ms"
        return f"{self.mode}{budget}" + ("" if self.adapter == OFF else f", adapter {self.adapter}")


def running_texts(workload: Workload, decode_steps: int, queries: int) -> int:
    """The most unfinished texts of a robot at once in the first `queries`, of `decode_steps` of each text."""
    running = [[0] * queries for _ in range(workload.robots)]
    for robot, query in itertools.product(range(workload.robots), range(queries)):
        for tokens in workload.lengths(robot, query):
            for during in range(query, min(queries, query + math.ceil(tokens / decode_steps))):
                running[robot][during] += 1
    return max(map(max, running))


def max_queries_per_text(workload: Workload, configuration: BenchConfiguration) -> int:
    """The most queries that a text takes, after which the pipeline is full."""
    if configuration.mode not in BUDGETED:
        return 1
    return math.ceil(workload.text_tokens / configuration.min_decode_steps)
