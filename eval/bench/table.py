"""The columns of a benchmark's rows, and its terminal output: two tables per workload, 110 columns wide."""

import itertools
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from contracts.latency import steps_in
from eval.bench.row import Row
from eval.bench.workloads import OFF
from eval.report.table import Column, Table, differ, to_terminal

WIDTH = 110
"""Width of the tables outside a terminal, in columns."""

_CONTROL_HZ = 20.0
_STEPS_NOTE = (
    "a: until actions arrive. b: until the next query, or the replan steps if they are more. Look them "
    "up in the figure of docs/results.md."
)


def _steps(row: Row) -> str:
    """The (a, b) of a row's medians, and those of its 95 % quantiles if they differ."""
    median, p95 = (
        "({}, {})".format(*(steps_in(ms, _CONTROL_HZ) for ms in each))
        for each in ((row.action_ms_p50, row.frame_ms_p50), (row.action_ms_p95, row.frame_ms_p95))
    )
    return median if median == p95 else f"{median} ({p95[1:-1]})"


def digits(value: float) -> str:
    """A number with three significant digits."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _field(name: str, heading: str, unit: str = "", form: Any = digits, **look: Any) -> Column:
    """A column of one of a row's numbers; a rate of nothing is left out."""
    return Column(heading, lambda row: getattr(row, name) or None, form, unit=unit, **look)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _interval(ends: Sequence[float]) -> str:
    return "{:.2f}–{:.2f}".format(*ends)


_OF_TEXT = "from the start of the query that requests the text"
TIMES = [
    _field("action_ms_p50", "action p50", "ms", legend="from a query's start until its actions are there"),
    _field("action_ms_p95", "action p95", optional=1),
    _field("frame_ms_p50", "frame p50", "ms", legend="until the next query can start, language decoded"),
    _field("frame_ms_p95", "frame p95", optional=1),
    _field("speedup_over_isolated", "times isolated", "", ".2f", legend="mean frame of isolated / this one"),
    _field("speedup_ci95", "95 % interval", "", _interval, optional=1),
    _field("predicted_speedup", "predicted", "", ".2f", legend="the same, from stage times alone"),
    _field("attained_fraction", "attained", "", _percent, legend="measured / predicted"),
    _field(
        "predicted_over_frame", "stage share", "", _percent, optional=1, legend="stages' part of the frame"
    ),
    _field("actions_per_s", "actions per s", legend="horizon × chunks"),
    _field("tokens_per_s", "tokens per s"),
]
TAILS = [
    _field("action_ms_p99", "action p99", "ms"),
    _field("frame_ms_p99", "frame p99"),
    _field("first_token_ms_p50", "first token p50", "ms", legend=_OF_TEXT),
    _field("first_token_ms_p99", "first token p99"),
    _field("request_ms_p50", "whole text p50", "ms", legend=_OF_TEXT),
    _field("request_ms_p99", "whole text p99"),
    _field("chunks_per_s", "chunks per s"),
    _field(
        *("needed_memory_bytes", "memory", "GiB", lambda size: f"{size / 2**30:.2f}"),
        legend="of the largest program",
    ),
]


def rows_table(rows: Sequence[Row], columns: Sequence[Column], **look: Any) -> Table:
    """The table of some rows, with what tells them apart."""
    labels = [
        Column("workload", lambda row: row.work, align="left", when=differ),
        Column("mode", lambda row: row.mode, align="left"),
        Column("k", lambda row: f"{row.deadline_ms:g} ms" if row.deadline_ms else row.tokens_per_frame),
        Column("adapter", lambda row: row.adapter, align="left", when=lambda masks: set(masks) != {OFF}),
    ]
    return Table(columns=[*labels, *columns], groups=[rows], **look)


def print_rows(rows: Sequence[Row], console: Console) -> None:
    """Print the tables of each workload among `rows`, in order, and warnings."""
    for workload in by_workload(rows):
        for columns, title in ((TIMES, workload[0].title), (TAILS, "")):
            table = rows_table(workload, columns, title=title, is_bold=lambda row: row.mode == "unified")
            console.print(to_terminal(table.fitting(console.width)))
    console.print(rows_table(rows, [*TIMES, *TAILS]).legend(), style="dim")
    if one_robot := [row for row in rows if row.robots == 1]:
        steps = "; ".join(f"{row.label}: {_steps(row)}" for row in one_robot)
        console.print(f"(a, b) in control steps at {_CONTROL_HZ:g} Hz, medians (p95): {steps}. {_STEPS_NOTE}")
    if any(row.actions_equal for row in rows) and not any(row.actions_equal is False for row in rows):
        console.print("The actions of all configurations of a workload are equal, bit for bit.", style="dim")
    for warning in warnings_of(rows):
        console.print(warning, style="red")


def by_workload(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each workload on each device, in order."""
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: row.title)]


def warnings_of(rows: Sequence[Row]) -> list[str]:
    """Reasons not to trust the measurements."""
    found = []
    if unequal := [row for row in rows if row.actions_equal is False]:
        found.append(
            f"{len(unequal)} configurations gave other actions than the rest of their workload, so their "
            f"times are not comparable: {', '.join(row.label for row in unequal)}."
        )
    if any(row.multi_process_service is False for row in rows):
        found.append(
            "parallel: NVIDIA's multi-process service did not run, so the two processes' kernels took turns."
        )
    if compiled := sum(row.compiles_after_warmup > 0 for row in rows):
        found.append(f"{compiled} configurations compiled something while they were measured.")
    busiest = max(rows, key=lambda row: row.hardware["load_average"][0])
    load, cores = busiest.hardware["load_average"][0], busiest.hardware["cores"]
    if busiest.device == "cpu" and load > 0.5 * cores:
        found.append(f"The machine was busy before the benchmark began: load {load} on {cores} cores.")
    return found


def open_console() -> Console:
    """A console for the terminal, or else as wide as the tables."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)
