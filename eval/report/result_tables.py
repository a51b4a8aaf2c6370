"""The columns of aggregated results, which the end of a run, its report and the leaderboard show."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from contracts.clock import MEASURED as MEASURED_CLOCK
from contracts.clock import PAUSED, Clock
from eval.metrics.language import HEADLINES, TextRow
from eval.metrics.rows import Row, Spread
from eval.report.table import Column, Table, percentage

TEXT_HEADINGS = {"narration": "narr.", "memory": "mem.", "textual_memory": "goals"}
MEASURES = {
    "narration": "narrations wholly right",
    "memory": "F1 of memory",
    "textual_memory": "exact textual memories",
}


def percent(value: float) -> str:
    """A success rate with its unit."""
    return percentage(value, 1, " %")


def _graded_texts(row: Row, task: str) -> TextRow | None:
    """The texts of a language task; None if none of them could be graded."""
    texts = row.texts.get(task)
    is_graded = texts and HEADLINES[task] in texts.at_request and HEADLINES[task] in texts.on_delivery
    return texts if is_graded else None


def _right(task: str) -> Column:
    """The headline measure on delivery; oracle texts are marked."""

    def value(row: Row) -> str | None:
        if (texts := _graded_texts(row, task)) is None:
            return None
        right = percentage(texts.on_delivery[HEADLINES[task]].pc, 0, " %")
        return f"{right}{' (oracle)' if texts.n_oracle else ''}"

    return Column(f"{task.replace('_', ' ')} right", value, optional=1)


def _graded(task: str) -> Column:
    """The headline measure at request and on delivery, and the graded texts; oracle texts are marked."""

    def value(row: Row) -> str | None:
        if (texts := _graded_texts(row, task)) is None:
            return None
        moments = (texts.at_request, texts.on_delivery)
        right = " → ".join(percentage(each[HEADLINES[task]].pc, 1) for each in moments)
        graded = f"{texts.n_texts - texts.n_not_graded}/{texts.n_texts}"
        return f"{right}, {graded}{' (oracle)' if texts.n_oracle else ''}"

    return Column(f"{task} (%), graded", value, key=task)


def _latency(stage: str) -> Callable[[Row], str | None]:
    """Quantiles of a latency of this machine."""

    def value(row: Row) -> str | None:
        found = row.latency_ms.get(stage)
        return f"{found.p50:.1f} / {found.p95:.1f}" if found else None

    return value


def _median_steps(name: str) -> Callable[[Row], float | None]:
    def value(row: Row) -> float | None:
        steps: Spread | None = getattr(row.control_steps, name, None)
        return None if steps is None else steps.median

    return value


def _progress(row: Row) -> float | None:
    """Mean progress if episodes that were not solved have some."""
    progress = row.pc_progress
    return None if progress is None or math.isclose(progress, row.pc_success or 0.0) else progress


N = Column("n", lambda row: row.n_episodes)
SUCCESS = Column("success", lambda row: row.pc_success, percent)
INTERVAL = Column(
    "95 % interval", lambda row: row.pc_success_ci95, lambda ends: "{:.1f}–{:.1f}".format(*ends), short="95 %"
)
SEEDS = Column(
    "over seeds",
    lambda row: row.seeds,
    lambda seeds: f"{seeds.mean:.1f} ± {seeds.sd:.1f}",
    unit="%",
    short="over\nseeds",
    legend="mean ± standard deviation of the seeds' success rates",
)
ERRORS = Column("errors", lambda row: row.n_errors, when=any)
WITH_ERRORS = Column(
    "errors as failures",
    lambda row: row.pc_with_errors,
    percent,
    short="errors as\nfailures",
    legend="success rate if errors were failures, as openpi counts them",
)
ERRORS_COUNTED = Column(
    "errors",
    lambda row: f"{row.n_errors}: {percentage(row.pc_with_errors, 0)} %" if row.n_errors else None,
    short="errors =\nfailures",
)
"""Both in one column, for the end of a run."""
MAIN = [
    Column("solved", lambda row: f"{row.n_success}/{row.n_episodes}"),
    SUCCESS,
    INTERVAL,
    SEEDS,
    Column(
        "time to success",
        lambda row: time.median if (time := row.time_to_success_s) else None,
        ".1f",
        unit="s",
        short="seconds to\nsuccess",
        optional=3,
        legend="simulated, median of the solved episodes",
    ),
    Column(
        "queries",
        lambda row: row.query_hz,
        lambda hz: f"{hz:.{1 if hz >= 10 else 2}f}",
        unit="Hz",
        short="queries\nper s",
        optional=2,
        legend="per simulated second",
    ),
    ERRORS,
]
"""The main columns of a run."""
TEXTS_RIGHT = [*map(_right, HEADLINES)]
_CHARGED = {"unit": "ms", "legend": "what the clock charges until the actions and until the next query, mean"}
_STEPS = {"legend": "control steps until actions arrive and until the next query, median"}
_MEASURED = {"unit": "ms", "legend": "latency on this machine, p50 / p95"}
CHARGED = [
    Column("actions", lambda row: row.charged_ms and row.charged_ms.actions, ".0f", **_CHARGED),
    Column("next query", lambda row: row.charged_ms and row.charged_ms.busy, ".0f", **_CHARGED),
    Column("a", _median_steps("a"), "g", **_STEPS),
    Column("b", _median_steps("b"), "g", **_STEPS),
]
"""The latency that the clock charges."""
DETAILS = [
    WITH_ERRORS,
    Column("progress", _progress, percent, legend="criteria of the task that were met, mean"),
    Column(
        "idle",
        lambda row: row.pc_idle if row.charged_ms else None,
        ".0f",
        unit="%",
        legend="control steps in which the robot is idle",
    ),
    *CHARGED,
    Column("without truth", lambda row: row.n_without_truth, when=any),
]
"""What else may be asked about a run."""
MEASURED = [
    Column("action", _latency("action"), **_MEASURED),
    Column("query", _latency("frame"), **_MEASURED),
    Column("tokens/s", lambda row: row.tokens_per_s or None, ".0f"),
]
"""How fast this machine was."""
TEXTS = [
    *map(_graded, HEADLINES),
    Column(
        "staleness",
        lambda row: row.staleness_ms,
        ".0f",
        unit="ms",
        legend="simulated time from a text's request to its delivery, mean",
    ),
]


def details(clocks: Iterable[Clock]) -> list[Column]:
    """All details of runs on these clocks; what was measured matters where no other latency is charged."""
    return [*DETAILS, *(MEASURED if {PAUSED, MEASURED_CLOCK} & set(clocks) else [])]


def labelled(
    label: Column, columns: Iterable[Column], *groups: Iterable[tuple[Any, Row]], **look: Any
) -> Table:
    """A table of groups of pairs: what the label names, and its row, which has the columns."""
    numbers = [column.of(lambda pair: pair[1]) for column in columns]
    return Table(columns=[label.of(lambda pair: pair[0]), *numbers], groups=[*map(list, groups)], **look)
