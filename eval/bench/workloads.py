"""Workloads with their arrivals, the configurations that do each of them, and the programs that each runs.

Predicts the programs of each query, with integers only: no device, no engine. It does not use the engine's
scheduler, since measurements of the engine are compared with its predictions.
"""

import dataclasses
import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Self

from configs.errors import UsageError, unknown
from oxygen.serving.arrivals import Arrivals, Burst, EveryN, Poisson, RandomLength
from oxygen.serving.scheduler import Mode

_SEED = 7
_FORMS: Mapping[str, str] = {
    "every": "every:QUERIES",
    "burst": "burst:TEXTS:QUERIES",
    "poisson": "poisson:TEXTS_PER_QUERY",
}


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
    """The work that all configurations do alike.

    Attributes:
        denoise_steps: Euler steps of the flow.
        text_tokens: Tokens of a text, or of the longest one if lengths are random.
        robots: Observations in a query.
        arrivals: When texts are requested, for every robot.
        arrivals_text: The arrivals as written on the command line.
        slots: Unfinished texts at once, of all robots; None for as many as are requested, so that none is
            dropped.
        rows: Texts that `unified` and `shared` decode in one batch; None for all unfinished ones.
        cameras: Images in an observation; None for the policy's number.
    """

    denoise_steps: int
    text_tokens: int
    robots: int
    arrivals: Arrivals
    arrivals_text: str
    slots: int | None = None
    rows: int | None = None
    cameras: int | None = None

    def __post_init__(self) -> None:
        longest = self.arrivals.longest or 0
        if longest > self.text_tokens:
            raise UsageError(
                f"arrivals {self.arrivals_text!r} request up to {longest} tokens; "
                f"text tokens: {self.text_tokens}"
            )
        if self.slots is not None and self.slots < self.robots:
            raise UsageError(f"slots: {self.slots}; at least one for each robot, {self.robots}")

    @classmethod
    def steady(cls, *, denoise_steps: int, text_tokens: int, cameras: int | None = None) -> Self:
        """One robot, and one text per query."""
        return cls(
            denoise_steps=denoise_steps,
            text_tokens=text_tokens,
            robots=1,
            arrivals=EveryN(n=1),
            arrivals_text="every:1",
            cameras=cameras,
        )

    def lengths(self, robot: int, query: int) -> list[int]:
        """Tokens of each text requested for a robot in a query."""
        return [self.text_tokens if n is None else n for n in self.arrivals.due(robot, query)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchConfiguration:
    """A mode and its token budget.

    Attributes:
        mode: How language is scheduled.
        tokens_per_frame: Decode steps of each text in a frame of modes `unified` and `interleaved`; None in
            other modes, and by deadline.
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

    def __str__(self) -> str:
        budget = "" if self.tokens_per_frame is None else f", k = {self.tokens_per_frame}"
        if self.deadline_ms is not None:
            budget = f", {self.deadline_ms:g} ms"
        return f"{self.mode.value}{budget}" + ("" if self.adapter == OFF else f", adapter {self.adapter}")


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


def programs_by_query(
    workload: Workload, configuration: BenchConfiguration, queries: int
) -> list[QueryPrograms]:
    """The programs of the first `queries` queries, if every text finds a slot and a row at once."""
    new = [[workload.lengths(robot, query) for robot in range(workload.robots)] for query in range(queries)]
    match configuration.mode:
        case Mode.UNIFIED:
            return _unified(new, configuration.min_decode_steps)
        case Mode.INTERLEAVED:
            return _interleaved(new, configuration.min_decode_steps)
        case Mode.SHARED:
            texts = [list(itertools.chain.from_iterable(by_robot)) for by_robot in new]
            return [
                QueryPrograms(prefills=1, decode_steps=max(lengths, default=0), texts=len(lengths))
                for lengths in texts
            ]
        case Mode.ACTIONS:
            return [QueryPrograms(prefills=1, decode_steps=0, texts=0) for _ in new]
        case _:
            return [_isolated(by_robot) for by_robot in new]


def _isolated(by_robot: Sequence[Sequence[int]]) -> QueryPrograms:
    """Each robot's texts one after the other, with a prefill each; the robots in one batch."""
    batches = _in_turns(by_robot)
    return QueryPrograms(
        prefills=1 + len(batches),
        decode_steps=sum(map(max, batches)),
        texts=max(map(len, batches), default=0),
    )


def _interleaved(new: Sequence[Sequence[Sequence[int]]], k: int) -> list[QueryPrograms]:
    """Each query decodes k tokens of every unfinished text, one text of each robot at a time.

    New texts, which follow the unfinished ones, have a prefill each, or one with those of the other robots.
    """
    queries, left = [], [list[int]() for _ in new[0]]
    for by_robot in new:
        turns = {
            turn
            for own, lengths in zip(left, by_robot, strict=True)
            for turn in range(len(own), len(own) + len(lengths))
        }
        left = [own + list(lengths) for own, lengths in zip(left, by_robot, strict=True)]
        queries.append(
            QueryPrograms(
                prefills=1 + len(turns),
                decode_steps=sum(min(k, max(batch)) for batch in _in_turns(left)),
                texts=sum(map(len, left)),
            )
        )
        left = [[length - k for length in own if length > k] for own in left]
    return queries


def _in_turns(by_robot: Sequence[Sequence[int]]) -> list[list[int]]:
    """The first texts of all robots, their second ones, …"""
    return [[length for length in turn if length is not None] for turn in itertools.zip_longest(*by_robot)]


def _unified(new: Sequence[Sequence[Sequence[int]]], k: int) -> list[QueryPrograms]:
    """Each query decodes k tokens of every unfinished text; `new` has the lengths by query and robot."""
    queries, left = [], list[int]()
    for by_robot in new:
        left += itertools.chain.from_iterable(by_robot)
        queries.append(QueryPrograms(prefills=1, decode_steps=min(k, max(left, default=0)), texts=len(left)))
        left = [length - k for length in left if length > k]
    return queries


def is_predictable(workload: Workload, configuration: BenchConfiguration, queries: int) -> bool:
    """Whether `programs_by_query` holds: all texts find slots and rows at once, and there is no deadline."""
    if configuration.deadline_ms is not None:
        return False
    if configuration.mode is Mode.ACTIONS:
        return True
    unfinished = max_new_requests(workload, queries)
    if configuration.mode in (Mode.UNIFIED, Mode.INTERLEAVED):
        unfinished = max(query.texts for query in programs_by_query(workload, configuration, queries))
    batch = unfinished if configuration.mode in (Mode.UNIFIED, Mode.SHARED) else 0
    return unfinished <= (workload.slots or unfinished) and batch <= (workload.rows or batch)


def max_queries_per_text(workload: Workload, configuration: BenchConfiguration) -> int:
    """The most queries that a text takes, after which the pipeline is full.

    With fewer rows than slots, a text may have to wait while those in all other slots are decoded.
    """
    if configuration.mode not in (Mode.UNIFIED, Mode.INTERLEAVED):
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
