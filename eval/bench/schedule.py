"""What each mode has to run for a workload, query by query: integers only, no device, no engine.

It is written down a second time here, apart from the engine's scheduler, because it says what the engine
*should* cost: the prediction that measurements are held against must not come from what is measured.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from eval.bench.workloads import Contender, Workload
from oxygen.serving.scheduler import Mode


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """The programs a query has to run.

    Attributes:
        prefills: Observations read, the actions' own included.
        decode_steps: Steps of decoding, whatever the size of their batch.
        texts: The most texts in one batch.
    """

    prefills: int
    decode_steps: int
    texts: int


def work(workload: Workload, contender: Contender, queries: int) -> list[Work]:
    """What the first `queries` queries have to run, where every text finds a slot and a row at once."""
    born = [[workload.lengths(robot, query) for robot in range(workload.robots)] for query in range(queries)]
    if contender.mode is Mode.UNIFIED:
        return _over_frames(born, contender.least_tokens)
    return [_IN_ONE_QUERY[contender.mode](texts) for texts in born]


def _actions(_: Sequence[Sequence[int]]) -> Work:
    return Work(prefills=1, decode_steps=0, texts=0)


def _isolated(of_robots: Sequence[Sequence[int]]) -> Work:
    """Each robot's texts one after the other, with a prefill each; the robots side by side."""
    turns = [
        [lengths[turn] for lengths in of_robots if turn < len(lengths)]
        for turn in range(max(map(len, of_robots)))
    ]
    return Work(
        prefills=1 + len(turns),
        decode_steps=sum(max(lengths) for lengths in turns),
        texts=max((len(lengths) for lengths in turns), default=0),
    )


def _shared(of_robots: Sequence[Sequence[int]]) -> Work:
    lengths = [length for lengths in of_robots for length in lengths]
    return Work(prefills=1, decode_steps=max(lengths, default=0), texts=len(lengths))


_IN_ONE_QUERY = {
    Mode.ACTIONS: _actions,
    Mode.ISOLATED: _isolated,
    Mode.PARALLEL: _isolated,
    Mode.SHARED: _shared,
}


def _over_frames(born: Sequence[Sequence[Sequence[int]]], k: int) -> list[Work]:
    """Texts stay until they have all their tokens; every frame brings each of them k more."""
    done, left = [], list[int]()
    for of_robots in born:
        left += [length for lengths in of_robots for length in lengths]
        done.append(Work(prefills=1, decode_steps=min(k, max(left, default=0)), texts=len(left)))
        left = [length - k for length in left if length > k]
    return done


def is_foreseen(workload: Workload, contender: Contender, queries: int) -> bool:
    """Whether `work` says what is run: texts find slots and rows at once, and no clock decides on steps."""
    if contender.deadline_ms is not None:
        return False
    if contender.mode is Mode.ACTIONS:
        return True
    alive = most_births(workload, queries)
    if contender.mode is Mode.UNIFIED:
        alive = max(query.texts for query in work(workload, contender, queries))
    in_one_batch = alive if contender.mode in (Mode.UNIFIED, Mode.SHARED) else 0
    return alive <= (workload.slots or alive) and in_one_batch <= (workload.rows or in_one_batch)


def longest_life(workload: Workload, contender: Contender) -> int:
    """The most queries that a text is under way: after as many, all that can go on at once does.

    Where rows are fewer than slots, a text may have to wait while those in all other slots are decoded.
    """
    if contender.mode is not Mode.UNIFIED:
        return 1
    decoded = math.ceil(workload.text_tokens / contender.least_tokens)
    if workload.rows is None:
        return decoded
    slots = workload.slots or max(query.texts for query in work(workload, contender, 2 * decoded))
    return decoded + math.ceil((slots - 1) * decoded / workload.rows)


def most_births(workload: Workload, queries: int) -> int:
    """The most texts, of all robots, that are born in one query."""
    return max(
        sum(len(workload.lengths(robot, query)) for robot in range(workload.robots))
        for query in range(queries)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageTimes:
    """Milliseconds of each program by itself, in one repetition.

    Attributes:
        prefill: Reading the observations of all robots.
        denoise: Their actions, all steps.
        guided_denoise: The same, guided towards actions under way.
        fork: The births of one query.
        decode: One step, by the size of the batch.
    """

    prefill: float
    denoise: float
    guided_denoise: float
    fork: float
    decode: Mapping[int, float]

    def predicted(self, queries: Sequence[tuple[Work, int | None]]) -> float:
        """What a query should take on average: its programs, and nothing for what holds them together.

        Args:
            queries: What each runs, and the size of the batch it decodes in; None if it decodes nothing.
        """
        return self.denoise + statistics.fmean(
            work.prefills * self.prefill + (0.0 if batch is None else work.decode_steps * self.decode[batch])
            for work, batch in queries
        )
