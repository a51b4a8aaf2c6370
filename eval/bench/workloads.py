"""Workloads with their arrivals, the configurations that do each of them, and the programs that each runs.

Predicts the programs of each query, with integers only: no device, no engine. It does not use the engine's
scheduler, since measurements of the engine are compared with its predictions.
"""

import dataclasses
import functools
import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence

from configs.errors import UsageError, pluralize, unknown
from oxygen.serving.arrivals import Arrivals, Burst, EveryN, Poisson, RandomLength
from oxygen.serving.scheduler import Mode

_SEED = 7
_FORMS: Mapping[str, str] = {
    "every": "every:QUERIES",
    "burst": "burst:TEXTS:QUERIES",
    "poisson": "poisson:TEXTS_PER_QUERY",
}


@functools.cache
def parse_arrivals(text: str) -> Arrivals:
    """The arrivals that `text` describes.

    `every:2` is a text in every second query, `burst:4:8` four texts in every eighth, `poisson:0.5` one in
    two queries on average. `@8-30` after any of them draws each text's length from 8 to 30 tokens.

    Raises:
        UsageError: It does not describe arrivals.
    """
    kind, _, rest = text.partition(":")
    if kind not in _FORMS:
        raise unknown("arrivals", text, _FORMS.values())
    body, at, lengths = rest.partition("@")
    try:
        match kind, body.split(":"):
            case "every", [n]:
                arrivals: Arrivals = EveryN(n=int(n))
            case "burst", [n, every]:
                arrivals = Burst(n=int(n), every=int(every))
            case "poisson", [rate]:
                arrivals = Poisson(rate=float(rate), seed=_SEED)
            case _:
                raise UsageError(f"write {_FORMS[kind]}, or {_FORMS[kind]}@LEAST-MOST")
        if not at:
            return arrivals
        if (bounds := re.fullmatch(r"(\d+)-(\d+)", lengths)) is None:
            raise UsageError(f"{lengths!r} is not a range of lengths; write @8-30")
        least, most = map(int, bounds.groups())
        return RandomLength(arrivals=arrivals, min_tokens=least, max_tokens=most, seed=_SEED)
    except UsageError as error:
        raise UsageError(f"arrivals {text!r}: {error}") from None
    except ValueError:
        raise UsageError(f"arrivals {text!r}: {body!r} has an invalid number; write {_FORMS[kind]}") from None


OFF = "off"
"""A configuration without an adapter."""
ADAPTERS = (OFF, "exact", "published")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """The work that all configurations do alike, and how often it is measured.

    Attributes:
        denoise_steps: Euler steps of the flow.
        text_tokens: Tokens of a text, or of the longest one if lengths are random.
        robots: Observations in a query.
        arrivals: When texts are requested, for every robot, as `parse_arrivals` reads it.
        slots: Unfinished texts at once, of all robots; None for as many as are requested, so that none is
            dropped.
        rows: Texts that `unified` and `shared` decode in one batch; None for all unfinished ones.
        cameras: Images in an observation; None for the policy's number.
        repetitions: Runs of each configuration.
        queries: Queries counted in a run; one more precedes them.
        warm_up_queries: Queries of each configuration before the first run: enough to fill the longest
            pipeline.
    """

    denoise_steps: int
    text_tokens: int
    robots: int = 1
    arrivals: str = "every:1"
    slots: int | None = None
    rows: int | None = None
    cameras: int | None = None
    repetitions: int = 1
    queries: int = 1
    warm_up_queries: int = 0

    def __post_init__(self) -> None:
        longest = parse_arrivals(self.arrivals).longest or 0
        if longest > self.text_tokens:
            raise UsageError(
                f"arrivals {self.arrivals!r} request up to {longest} tokens; text tokens: {self.text_tokens}"
            )
        if self.slots is not None and self.slots < self.robots:
            raise UsageError(f"slots: {self.slots}; at least one for each robot, {self.robots}")

    @property
    def queries_per_run(self) -> int:
        """Queries in a run, the uncounted first one included."""
        return 1 + self.queries

    @property
    def total_queries(self) -> int:
        """Queries of one configuration, warm-up included."""
        return self.warm_up_queries + self.repetitions * self.queries_per_run

    def counted_slice(self, repetition: int) -> slice:
        """The counted queries of one repetition, within all queries of a configuration."""
        start = self.warm_up_queries + repetition * self.queries_per_run + 1
        return slice(start, start + self.queries)

    def lengths(self, robot: int, query: int) -> list[int]:
        """Tokens of each text requested for a robot in a query."""
        due = parse_arrivals(self.arrivals).due(robot, query)
        return [self.text_tokens if n is None else n for n in due]

    @property
    def work(self) -> str:
        """Describes what is done, but not how often it is measured."""
        found = [f"N = {self.text_tokens}", self.arrivals, f"{self.denoise_steps} denoise steps"]
        limits = ((self.slots, "slot"), (self.rows, "row"))
        limited = [pluralize(n, what) for n, what in limits if n is not None]
        return ", ".join([*found, self.robots_and_cameras, *limited])

    @property
    def robots_and_cameras(self) -> str:
        """The number of robots, and of cameras of each."""
        cameras = "" if self.cameras is None else f" of {pluralize(self.cameras, 'camera')}"
        return pluralize(self.robots, "robot") + cameras


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchConfiguration:
    """A mode and its token budget.

    Attributes:
        mode: How language is scheduled.
        tokens_per_frame: Decode steps of each text in a frame of modes `unified` and `interleaved`, k; None
            in other modes, and by deadline.
        deadline_ms: Deadline of a frame in mode `unified`, instead of `tokens_per_frame`; milliseconds.
        adapter: The mask of a suffix adapter that texts use; `off` for none.
    """

    mode: Mode
    tokens_per_frame: int | None = None
    deadline_ms: float | None = None
    adapter: str = OFF

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryPrograms:
    """The programs that a query runs.

    Attributes:
        prefills: Prefills, the one for the actions included.
        decode_steps: Decode steps, of any batch size.
        texts: The most texts in one batch; in mode `interleaved`, all unfinished ones.
    """

    prefills: int
    decode_steps: int
    texts: int


BUDGETED = (Mode.UNIFIED, Mode.INTERLEAVED)
"""A query decodes a few tokens of every unfinished text; in the other modes, whole texts."""
_BATCHED = (Mode.UNIFIED, Mode.SHARED)
"""All texts are one batch that shares the actions' prefill; in the other modes each has its own prefill, and
the first texts of all robots are decoded, then their second ones, …"""


def programs_by_query(
    workload: Workload, configuration: BenchConfiguration, queries: int
) -> list[QueryPrograms]:
    """The programs of the first `queries` queries, if every text finds a slot and a row at once."""
    mode = configuration.mode
    k = configuration.min_decode_steps if mode in BUDGETED else workload.text_tokens
    found, left = [], [list[int]() for _ in range(workload.robots)]  # tokens left of each robot's texts
    for query in range(queries):
        prefilled = [len(own) for own in left]
        if mode is not Mode.ACTIONS:
            left = [own + workload.lengths(robot, query) for robot, own in enumerate(left)]
        texts = list(itertools.chain.from_iterable(left))
        if mode in _BATCHED:
            batches, prefills = [texts] if texts else [], 0
        else:
            turns = itertools.zip_longest(*left)
            batches = [[tokens for tokens in turn if tokens is not None] for turn in turns]
            new = zip(prefilled, left, strict=True)
            prefills = len({turn for before, own in new for turn in range(before, len(own))})
        found.append(
            QueryPrograms(
                prefills=1 + prefills,
                decode_steps=sum(min(k, max(batch)) for batch in batches),
                texts=len(texts) if mode in BUDGETED else max(map(len, batches), default=0),
            )
        )
        left = [[tokens - k for tokens in own if tokens > k] for own in left]
    return found


def is_predictable(workload: Workload, configuration: BenchConfiguration, queries: int) -> bool:
    """Whether `programs_by_query` holds: all texts find slots and rows at once, and there is no deadline.

    In `parallel` two processes share the device, so that its programs do not add up.
    """
    mode = configuration.mode
    if configuration.deadline_ms is not None or mode is Mode.PARALLEL:
        return False
    if mode is Mode.ACTIONS:
        return True
    unfinished = max_new_requests(workload, queries)
    if mode in BUDGETED:
        unfinished = max(query.texts for query in programs_by_query(workload, configuration, queries))
    batch = unfinished if mode in _BATCHED else 0
    return unfinished <= (workload.slots or unfinished) and batch <= (workload.rows or batch)


def max_queries_per_text(workload: Workload, configuration: BenchConfiguration) -> int:
    """The most queries that a text takes, after which the pipeline is full.

    With fewer rows than slots, a text may have to wait while those in all other slots are decoded.
    """
    if configuration.mode not in BUDGETED:
        return 1
    decoded = math.ceil(workload.text_tokens / configuration.min_decode_steps)
    if configuration.mode is Mode.INTERLEAVED or workload.rows is None:
        return decoded
    slots = workload.slots or max(
        query.texts for query in programs_by_query(workload, configuration, 2 * decoded)
    )
    return decoded + math.ceil((slots - 1) * decoded / workload.rows)


def max_new_requests(workload: Workload, queries: int) -> int:
    """The most texts, of all robots, requested in one query."""
    return max(
        sum(len(workload.lengths(robot, query)) for robot in range(workload.robots))
        for query in range(queries)
    )


def decode_batch(configuration: BenchConfiguration, sizes: Sequence[int], query: QueryPrograms) -> int | None:
    """The engine's choice among ascending batch `sizes`; None if the query decodes nothing.

    `shared` takes the smallest batch that holds the texts, the other modes the largest.
    """
    if not query.decode_steps:
        return None
    wanted = min(query.texts, sizes[-1]) if configuration.mode is Mode.SHARED else sizes[-1]
    return next(size for size in sizes if size >= wanted)


def predicted_ms(stage_ms: Mapping[str, float], queries: Sequence[tuple[QueryPrograms, int | None]]) -> float:
    """Mean milliseconds of a query by its programs alone: no forks, no host.

    Args:
        stage_ms: Milliseconds of `prefill`, `denoise` and `decode_B` for each batch size B.
        queries: The programs of each query, and its decode batch size; None if it decodes nothing.
    """
    return stage_ms["denoise"] + statistics.fmean(
        query.prefills * stage_ms["prefill"]
        + (0.0 if batch is None else query.decode_steps * stage_ms[f"decode_{batch}"])
        for query, batch in queries
    )
