"""How a policy is served: mode, token budget, sizes; and the programs that this takes."""

import dataclasses
from collections.abc import Sequence

from configs.errors import UsageError
from oxygen.serving.budget import Budget, FixedTokens
from oxygen.serving.language import TokenizedTask
from oxygen.serving.runner import Sizes
from oxygen.serving.scheduler import Mode

_FIVE_TOKENS = FixedTokens(5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How a policy is served.

    Attributes:
        mode: How language is scheduled beside the actions.
        budget: In mode `unified`, decode steps in an engine step.
        slots: Requests that can be active at once; the memory of the KV pool is proportional to it. Every
            language task of every robot needs one at least. Where texts may have to wait for a row, as
            under a deadline, `ample_slots` is how many make room for the newest one of every task.
        rows: Requests decoded in one batch; others wait in their slots. Mode `unified` always decodes so
            many, `isolated` one of each robot, `shared` those requested together: scores differ in their last
            bits from one size of batch to another, and with them, where two tokens score almost alike, texts.
        robots: Observations that are read at once.
        independent: Whether each robot is served as if it were alone: its texts are decoded in the queries of
            its own alone, at batch sizes that no other robot changes, and its replies report its own work. So
            its texts, and what a latency profile charges for them, are a function of its own episode. Slots
            and rows are divided evenly among the robots. Otherwise texts go on while their robot sits out.
        guided: Whether actions can be guided towards those under way (real-time chunking).
    """

    mode: Mode = Mode.UNIFIED
    budget: Budget = _FIVE_TOKENS
    slots: int = 12
    rows: int = 8
    robots: int = 1
    independent: bool = False
    guided: bool = False

    def __post_init__(self) -> None:
        for field in ("robots", "slots", "rows"):
            if getattr(self, field) < 1:
                raise UsageError(f"{field} is {getattr(self, field)}; it must be at least 1")
            if self.independent and getattr(self, field) % self.robots:
                raise UsageError(
                    f"{field} is {getattr(self, field)} for {self.robots} independent robots; give a multiple"
                )

    @property
    def alone(self) -> "EngineConfig":
        """How one of the robots would be served by itself."""
        shares = {"slots": self.slots // self.robots, "rows": self.rows // self.robots}
        return dataclasses.replace(self, robots=1, **shares)


def sizes_for(engine: EngineConfig, tasks: Sequence[TokenizedTask]) -> Sizes:
    """The shapes to compile, so that every mode finds forks and decode batches no larger than it needs.

    `isolated` and `parallel` decode a text of each robot at a time, `shared` all new requests of a query,
    `unified` as many as the engine's rows.
    """
    new = max(1, engine.robots * sum(task.arrivals.within(1) for task in tasks))
    drawn = [task.sampling for task in tasks if not task.sampling.greedy]
    return Sizes(
        robots=engine.robots,
        slots=engine.slots,
        rows=tuple(sorted({engine.robots, min(new, engine.rows), engine.rows})),
        forks=tuple(sorted({min(new, engine.robots), new})),
        suffix=max([1, *(len(task.suffix) for task in tasks)]),
        limit=max([1, *(task.max_tokens for task in tasks)]),
        top_k=max([0, *(sampling.top_k or 1 for sampling in drawn)]),
        guided=engine.guided,
    )


def ample_slots(*, tasks: int, rows: int, robots: int = 1) -> int:
    """Slots with which no request is dropped on arrival, however many wait; older ones are dropped instead.

    Requests of one task and robot start in the order of their arrival, once all before them have a row: so no
    more requests than there are rows have started and not ended. With one slot more for every task of every
    robot, a slot is free wherever no request of the same queue waits and no other queue has two. Where every
    active request has a row, as many slots as rows are enough.
    """
    return max(rows, robots * tasks * (rows + 1))


def check_serves(engine: EngineConfig, sizes: Sizes) -> None:
    """Refuse to serve beyond what the programs were compiled for.

    Raises:
        UsageError: Names what is too large, or another number of robots.
    """
    for field, most in (("slots", sizes.slots), ("rows", sizes.rows[-1])):
        wanted = getattr(engine, field)
        if wanted > most:
            raise UsageError(f"{field} is {wanted}; the programs take {most} at most")
    if engine.robots != sizes.robots:
        raise UsageError(f"robots is {engine.robots}; the programs were compiled for {sizes.robots}")
    if engine.guided and not sizes.guided:
        raise UsageError("guided is True; the programs were compiled without guidance")
