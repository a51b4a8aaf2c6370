"""Engine configuration (mode, token budget, sizes) and the program shapes it needs."""

import dataclasses
import math
from collections.abc import Sequence

from contracts.errors import UsageError
from contracts.mode import Mode
from oxygen.serving.language import LanguageTask
from oxygen.serving.runner import ProgramSizes
from oxygen.serving.scheduler import Budget, FixedTokens

_FIVE_TOKENS = FixedTokens(5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Configuration of the serving engine.

    Attributes:
        mode: How language is scheduled beside the actions.
        budget: In modes `unified` and `interleaved`, decode steps of each text in an engine step.
        slots: Maximal active requests of a robot; the KV pool's memory is proportional to it. Every language
            task needs at least one. With `ample_slots`, the newest request of every task always gets one,
            even if texts wait for a row.
        rows: Requests of a robot decoded in one batch; others wait in their slots. Mode `unified` always
            decodes this many, `isolated` and `interleaved` one, `shared` those requested together. Logits
            differ in their last bits between batch sizes, and so may texts where two tokens are almost
            equally likely.
        robots: Observations in one batch. Each robot is served as if it were alone: its texts are decoded
            only in its own queries, at batch sizes that do not depend on other robots, and its replies report
            its own work. So its texts, and their cost by a latency profile, are a function of its episode.
        guided: Whether actions can be guided towards the chunk in execution (real-time chunking).
        int8_decode: Whether texts are decoded with int8 weights, which changes texts but no action.
    """

    mode: Mode = Mode.UNIFIED
    budget: Budget = _FIVE_TOKENS
    slots: int = 12
    rows: int = 8
    robots: int = 1
    guided: bool = False
    int8_decode: bool = False

    def __post_init__(self) -> None:
        for field in ("robots", "slots", "rows"):
            if getattr(self, field) < 1:
                raise UsageError(f"{field} is {getattr(self, field)}; it must be at least 1")


def sizes_for(engine: EngineConfig, tasks: Sequence[LanguageTask]) -> ProgramSizes:
    """The shapes to compile for tokenized tasks; no mode has larger forks and decode batches than it needs.

    Of each robot, `isolated`, `interleaved` and `parallel` decode one text at a time, `shared` all new
    requests of a query, `unified` the engine's rows.
    """
    new = max(1, sum(task.arrivals.within(1) for task in tasks))
    sampled = [task.sampling for task in tasks if not task.sampling.greedy]
    return ProgramSizes(
        robots=engine.robots,
        slots=engine.robots * engine.slots,
        rows=tuple(sorted({engine.robots * rows for rows in (1, min(new, engine.rows), engine.rows)})),
        forks=tuple(sorted({engine.robots, engine.robots * new})),
        suffix=max([1, *(len(task.suffix) for task in tasks)]),
        limit=max([1, *(task.max_tokens for task in tasks)]),
        top_k=max([0, *(sampling.top_k or 1 for sampling in sampled)]),
        guided=engine.guided,
        int8_decode=engine.int8_decode,
    )


def texts_in_progress(tasks: Sequence[LanguageTask], tokens_per_frame: int) -> int:
    """The most texts of a robot at once when every query decodes `tokens_per_frame` of each; at least 1."""
    queries = {task.name: math.ceil(task.max_tokens / tokens_per_frame) for task in tasks}
    return max(1, sum(task.arrivals.within(queries[task.name]) for task in tasks))


def ample_slots(*, tasks: int, rows: int) -> int:
    """Slots of a robot with which no request is dropped on arrival; older waiting ones are dropped instead.

    Requests of one task start in order of arrival, so at most `rows` of them run. With one more slot for
    every task, a slot is free unless a request of the same task, or two of another, wait. If every active
    request has a row, `rows` slots suffice.
    """
    return max(rows, tasks * (rows + 1))


def check_serves(engine: EngineConfig, sizes: ProgramSizes) -> None:
    """Refuse a configuration that exceeds the compiled programs, naming the field."""
    for field, of_all in (("slots", sizes.slots), ("rows", sizes.rows[-1])):
        if getattr(engine, field) > (most := of_all // sizes.robots):
            raise UsageError(f"{field} is {getattr(engine, field)}; the programs take {most} at most")
    guided = engine.guided and sizes.guided  # programs with guidance also serve without
    compiled = {"robots": sizes.robots, "guided": guided, "int8_decode": sizes.int8_decode}
    for field, value in compiled.items():
        if getattr(engine, field) != value:
            raise UsageError(f"{field} is {getattr(engine, field)}; the programs were compiled with {value}")
