"""What a bundled policy was to reach, and how much of it the recorded results say it has."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from configs.load import load
from configs.schema import SuiteConfig
from eval.bundle.results import Result
from eval.metrics.statistics import wilson_95

_MAY_DIFFER = {"wordings", "language_tasks", "tokens_per_frame", "deadline_ms", "seed"}
"""Options that a run may have and still count; with any other it is not the whole suite as published."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where success is measured: in a suite, on the package's own assets or on LIBERO's."""

    suite: str
    standins: bool = True

    def __str__(self) -> str:
        return f"{self.suite}, {'stand-ins' if self.standins else 'real assets'}"

    def has(self, result: Result) -> bool:
        """Whether the result is of this place."""
        return result.suite == self.suite and (result.assets.name == "standins") == self.standins


@dataclasses.dataclass(frozen=True, kw_only=True)
class Targets:
    """What a policy is to reach in development: from stored states, in wordings that training never saw.

    Attributes:
        success: Where, and the least percentage of episodes solved; None for as far as it gets.
        texts: Language task and measure to the least percentage, in each of these places, against the truth
            of the query that a text was born in.
        trials: Episodes of each task.
        query_ms: The longest that half of the queries may take, milliseconds, in any mode.
        cores: Of the machine that says so, which has no accelerator.
    """

    success: Mapping[Place, float | None]
    texts: Mapping[tuple[str, str], float]
    trials: int
    query_ms: float
    cores: int


TARGETS: Mapping[str, Targets] = {
    "tiny": Targets(
        success={
            Place(suite="libero_object"): 90.0,
            Place(suite="libero_object", standins=False): 75.0,
            Place(suite="libero_spatial"): 80.0,
            Place(suite="libero_goal"): None,
        },
        texts={
            ("narration", "phase"): 85.0,
            ("narration", "object"): 95.0,
            ("narration", "target"): 95.0,
            ("memory", "f1"): 85.0,
        },
        trials=20,
        query_ms=60.0,
        cores=2,
    )
}
"""By the name of the policy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reached:
    """A target and how far it was reached, as the card shows it.

    Attributes:
        what: The measure.
        where: Where it is taken.
        asked: What it was to be.
        value: What it is: the worst of those runs that have the most trials of each task.
        interval: Its 95 % interval.
        trials: Episodes of each task behind it.
        modes: The modes of these runs.
        met: `yes`, `no`, `too few trials`, `not measured`; `–` where nothing was asked.
    """

    what: str
    where: str
    asked: str
    value: str = "–"
    interval: str = "–"
    trials: str = "–"
    modes: str = "–"
    met: str = "not measured"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Percentage:
    """A measure of a run."""

    result: Result
    pc: float
    ci95: Sequence[float] | None

    @property
    def trials(self) -> int:
        return min((task.n_episodes for task in self.result.tasks), default=0)


_Measure = Callable[[Result], _Percentage | None]


def reached(
    targets: Targets, results: Sequence[Result], begun: Callable[[str], Iterable[int]]
) -> list[Reached]:
    """Every target beside what the results say.

    Args:
        targets: What was to be reached.
        results: What was measured.
        begun: From a suite to the initial states that training began in: runs that share any do not count.
    """
    fair = [
        result
        for result in results
        if _is_fair(result) and not set(result.init_ids) & set(begun(result.suite))
    ]
    asked = [("success", place, bound, _success) for place, bound in targets.success.items()] + [
        (f"{task}: {measure}", place, bound, _said(task, measure))
        for (task, measure), bound in targets.texts.items()
        for place in targets.success
    ]
    rows = [
        _row(what, place, bound, targets.trials, _found(fair, place, measure))
        for what, place, bound, measure in asked
    ]
    return [*rows, _query(targets, results)]


def _is_fair(result: Result) -> bool:
    """Whether it is of the whole suite as published, but in words and from states that were held out."""
    held_out = result.options.get("wordings") == "held_out"
    stored = load(SuiteConfig, result.suite).trials_per_task
    return held_out and set(result.options) <= _MAY_DIFFER and max(result.init_ids) < stored


def _found(results: Iterable[Result], place: Place, measure: _Measure) -> list[_Percentage]:
    """The measure in the runs of a place that have the most trials of each task."""
    measured = [found for result in results if place.has(result) and (found := measure(result))]
    most = max((each.trials for each in measured), default=0)
    return [each for each in measured if each.trials == most]


def _success(result: Result) -> _Percentage | None:
    interval = wilson_95(result.n_success, result.n_episodes)
    if interval is None:
        return None
    pc = 100 * result.n_success / result.n_episodes
    return _Percentage(result=result, pc=pc, ci95=(100 * interval.low, 100 * interval.high))


def _said(task: str, measure: str) -> _Measure:
    def percentage(result: Result) -> _Percentage | None:
        row = result.texts.get(task)
        score = row.born.get(measure) if row else None
        return None if score is None else _Percentage(result=result, pc=score["pc"], ci95=score["ci95"])

    return percentage


def _row(what: str, place: Place, bound: float | None, trials: int, found: Sequence[_Percentage]) -> Reached:
    asked = "as far as it gets" if bound is None else f"≥ {bound:g} %"
    if not found:
        return Reached(what=what, where=str(place), asked=asked)
    worst = min(found, key=lambda each: each.pc)
    return Reached(
        what=what,
        where=str(place),
        asked=asked,
        value=f"{worst.pc:.1f} %",
        interval="–" if worst.ci95 is None else f"{worst.ci95[0]:.1f} – {worst.ci95[1]:.1f}",
        trials=str(worst.trials),
        modes=_modes(each.result for each in found),
        met=_met(worst, bound, trials),
    )


def _met(worst: _Percentage, bound: float | None, trials: int) -> str:
    if bound is None:
        return "–"
    if worst.pc < bound:
        return "no"
    return "too few trials" if worst.trials < trials else "yes"


def _query(targets: Targets, results: Iterable[Result]) -> Reached:
    machine = f", {targets.cores} cores"
    timed = [result for result in results if result.latency_ms.get("frame")]
    here = [result for result in timed if result.machine.endswith(machine)]
    asked = Reached(
        what="a query, median", where=f"{targets.cores} cores, any suite", asked=f"≤ {targets.query_ms:g} ms"
    )
    if not here:
        return asked
    longest = max(result.latency_ms["frame"]["p50"] for result in here)
    return dataclasses.replace(
        asked,
        value=f"{longest:.1f} ms",
        modes=_modes(here),
        met="yes" if longest <= targets.query_ms else "no",
    )


def _modes(results: Iterable[Result]) -> str:
    return ", ".join(sorted({result.mode for result in results}))
