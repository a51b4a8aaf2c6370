"""Predicts the programs that each mode runs in each query of a workload. Integers only: no device, no engine.

It does not use the engine's scheduler, since measurements of the engine are compared with its predictions.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Self

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
            return _across_queries(new, configuration.min_decode_steps)
        case Mode.INTERLEAVED:
            return _interleaved(new, configuration.min_decode_steps)
        case Mode.SHARED:
            return [_shared(texts) for texts in new]
        case Mode.ACTIONS:
            return [QueryPrograms(prefills=1, decode_steps=0, texts=0) for _ in new]
        case _:
            return [_isolated(texts) for texts in new]


def _isolated(by_robot: Sequence[Sequence[int]]) -> QueryPrograms:
    """Each robot's texts one after the other, with a prefill each; the robots in one batch."""
    batches = [
        [lengths[index] for lengths in by_robot if index < len(lengths)]
        for index in range(max(map(len, by_robot)))
    ]
    return QueryPrograms(
        prefills=1 + len(batches),
        decode_steps=sum(max(lengths) for lengths in batches),
        texts=max((len(lengths) for lengths in batches), default=0),
    )


def _shared(by_robot: Sequence[Sequence[int]]) -> QueryPrograms:
    lengths = [length for lengths in by_robot for length in lengths]
    return QueryPrograms(prefills=1, decode_steps=max(lengths, default=0), texts=len(lengths))


def _interleaved(new: Sequence[Sequence[Sequence[int]]], k: int) -> list[QueryPrograms]:
    """Each query decodes k tokens of every unfinished text, one text of each robot at a time.

    New texts, which follow the unfinished ones, have a prefill each, or one with those of the other robots.
    """
    queries, left = [], [list[int]() for _ in new[0]]
    for by_robot in new:
        begun = [len(own) for own in left]
        left = [own + list(lengths) for own, lengths in zip(left, by_robot, strict=True)]
        rounds = range(max(map(len, left)))
        queries.append(
            QueryPrograms(
                prefills=1
                + sum(
                    any(old <= turn < len(own) for old, own in zip(begun, left, strict=True))
                    for turn in rounds
                ),
                decode_steps=sum(
                    min(k, max(own[turn] for own in left if turn < len(own))) for turn in rounds
                ),
                texts=sum(map(len, left)),
            )
        )
        left = [[length - k for length in own if length > k] for own in left]
    return queries


def _across_queries(new: Sequence[Sequence[Sequence[int]]], k: int) -> list[QueryPrograms]:
    """Each query decodes k tokens of every unfinished text; `new` has the lengths by query and robot."""
    queries, left = [], list[int]()
    for by_robot in new:
        left += [length for lengths in by_robot for length in lengths]
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageTimes:
    """Milliseconds of each program alone, in one repetition.

    Attributes:
        prefill: The observations of all robots.
        denoise: Their actions, all Euler steps.
        guided_denoise: The same, guided towards the previous chunk.
        fork: Starting the texts requested in one query.
        decode: One step, by batch size.
    """

    prefill: float
    denoise: float
    guided_denoise: float
    fork: float
    decode: Mapping[int, float]

    @classmethod
    def median(cls, times: Sequence[Self]) -> Self:
        """The median of each program over repetitions."""
        programs = ("prefill", "denoise", "guided_denoise", "fork")
        return cls(
            **{name: statistics.median(getattr(one, name) for one in times) for name in programs},
            decode={size: statistics.median(one.decode[size] for one in times) for size in times[0].decode},
        )

    def predicted(self, queries: Sequence[tuple[QueryPrograms, int | None]]) -> float:
        """Mean milliseconds of a query by its programs alone: no forks, no host.

        Args:
            queries: The programs of each query, and its decode batch size; None if it decodes nothing.
        """
        return self.denoise + statistics.fmean(
            query.prefills * self.prefill
            + (0.0 if batch is None else query.decode_steps * self.decode[batch])
            for query, batch in queries
        )
