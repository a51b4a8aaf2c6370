"""Predicts the programs that each mode runs in each query of a workload. Integers only: no device, no engine.

It does not use the engine's scheduler, since measurements of the engine are compared with its predictions.
"""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

from eval.bench.workloads import BenchConfiguration, Workload
from oxygen.serving.scheduler import Mode


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
