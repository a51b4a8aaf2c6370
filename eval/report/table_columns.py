"""The numeric columns of a run's table, chosen by its clock and the width of the terminal."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from eval.metrics.language import HEADLINES
from eval.report.labels import PAUSED, number

Row = Mapping[str, Any]
"""A row of results, as `eval.metrics.success.aggregate` makes it."""

TEXT_HEADINGS = {"narration": "narr.", "memory": "mem.", "textual_memory": "goals"}

_MIN_ROOM = 11
"""Minimum width of the first column, characters."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column of numbers.

    Attributes:
        heading: What it shows, with its unit in a second line.
        width: Characters.
        cell: Maps a row of results to its text.
        optional: Order in which columns are dropped where width is short, 1 first; None if never.
    """

    heading: str
    width: int
    cell: Callable[[Row], str]
    optional: int | None = None


def fitting_columns(rows: Sequence[Row], *, clock: str, width: int, label: int) -> list[Column]:
    """The columns of some rows, without optional ones that leave no room for the first column.

    Args:
        rows: The most comprehensive rows of the table.
        clock: The runs' clock: `paused` shows measured latency, all others charged times.
        width: Characters of the whole table.
        label: Characters that the first column needs.
    """
    columns = _columns(rows, clock)
    for last in sorted(column.optional for column in columns if column.optional is not None):
        if first_column_room(columns, width) >= label:
            break
        columns = [column for column in columns if column.optional != last]
    return columns


def first_column_room(columns: Sequence[Column], width: int) -> int:
    """Width left for the first column, characters."""
    return max(_MIN_ROOM, width - sum(column.width + 1 for column in columns) - 3)


def empty_table(title: str | None, first: str, columns: Sequence[Column], width: int) -> Table:
    """A table without rows."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    table.add_column(first, no_wrap=True, max_width=first_column_room(columns, width), vertical="bottom")
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True, width=column.width, vertical="bottom")
    return table


def is_graded(row: Row, task: str) -> bool:
    """Whether a text of the language task could be graded."""
    scores = row["texts"].get(task)
    return scores is not None and HEADLINES[task] in scores["at_request"]


def is_timed(row: Row) -> bool:
    """Whether an episode recorded its simulated time."""
    return row["query_hz"] is not None


def _columns(rows: Sequence[Row], clock: str) -> list[Column]:
    largest = max((row["n_episodes"] for row in rows), default=0)
    tasks = [task for task in TEXT_HEADINGS if any(is_graded(row, task) for row in rows)]
    progress = [_PROGRESS] if any(row["pc_progress"] is not None for row in rows) else []
    errors = Column(heading="errors", width=6, cell=lambda row: str(row["n_errors"]))
    charged = _CHARGED if any(row["staleness_ms"] is not None for row in rows) else _CHARGED[:-1]
    return [
        Column(heading="n", width=max(2, len(str(largest))), cell=lambda row: str(row["n_episodes"])),
        Column(heading="success", width=7, cell=lambda row: number(row["pc_success"], ".1f", " %")),
        Column(heading="95 %", width=10, cell=_interval),
        *progress,
        *([_TIME] if any(map(is_timed, rows)) else []),
        *(_MEASURED if clock == PAUSED else charged),
        *([errors] if any(row["n_errors"] for row in rows) else []),
        *(_text_column(task, clock) for task in tasks),
    ]


def _text_column(task: str, clock: str) -> Column:
    """The scores of a language task; on clocks other than `paused`, on delivery, too."""
    heading = f"{TEXT_HEADINGS[task]}\n%"
    if clock == PAUSED:
        return Column(heading=heading, width=5, cell=lambda row: _scores(row, task, "at_request"))
    return Column(heading=heading, width=7, cell=lambda row: _scores(row, task, "at_request", "on_delivery"))


def _interval(row: Row) -> str:
    low, high = row["pc_success_ci95"] or (None, None)
    return "–" if low is None else f"{low:.1f}–{high:.1f}"


def _progress(row: Row) -> str:
    """Mean progress; the success rate if the row has no partial credit."""
    return number(row["pc_success"] if row["pc_progress"] is None else row["pc_progress"], ".1f", " %")


def _time(row: Row) -> str:
    return number((row["time_to_success_s"] or {}).get("median"), ".1f")


def _query_hz(row: Row) -> str:
    rate = row["query_hz"]
    return number(rate, ".1f" if rate is not None and rate >= 10 else ".2f")


def _scores(row: Row, task: str, *moments: str) -> str:
    """The headline measure at each moment, percent, joined by arrows."""
    if not is_graded(row, task):
        return "–"
    return "→".join(f"{row['texts'][task][when][HEADLINES[task]]['pc']:.0f}" for when in moments)


def _median(row: Row, stage: str) -> str:
    if stage not in row["latency_ms"]:
        return "–"
    milliseconds = row["latency_ms"][stage]["p50"]
    return f"{milliseconds:.{1 if milliseconds < 1000 else 0}f}"


_PROGRESS = Column(heading="progr.", width=7, cell=_progress)
_TIME = Column(heading="time\ns", width=5, cell=_time)
_MEASURED = (
    Column(heading="action\nms", width=6, cell=lambda row: _median(row, "action"), optional=3),
    Column(heading="frame\nms", width=6, cell=lambda row: _median(row, "frame"), optional=2),
    Column(heading="tok/s", width=5, cell=lambda row: number(row["tokens_per_s"] or None, ".0f"), optional=1),
)
"""Measured wall time; shown on clock `paused` alone."""
_CHARGED = (
    Column(heading="query\nHz", width=5, cell=_query_hz),
    Column(heading="held\n%", width=4, cell=lambda row: number(row["pc_held"], ".0f"), optional=1),
    Column(heading="stale\nms", width=5, cell=lambda row: number(row["staleness_ms"], ".0f"), optional=2),
)
