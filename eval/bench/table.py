"""The benchmark's terminal output: two tables per workload, and the roofline; 110 columns wide."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from configs.latency import steps_in
from eval.bench.costs import Peaks
from eval.bench.row import Row
from eval.bench.workloads import OFF
from eval.report.labels import number

WIDTH = 110
"""Width of the tables outside a terminal, in columns."""

_LEGEND = (
    "action: latency of the actions. frame: until the next query can start, all language of this one "
    "decoded. times isolated: mean frame of isolated / this one; predicted: from stage times alone; stage "
    "share: their part of the frame. actions: horizon × chunks. first token, whole text: from the start of "
    "the query that requests the text. memory: of the largest program. Times are milliseconds."
)
_CONTROL_HZ = 20.0
_STEPS_NOTE = (
    "a: until actions arrive. b: until the next query, or the replan steps if they are more. Find them on "
    "the figure of docs/results.md."
)


def _k(row: Row) -> str:
    """Tokens per frame, or the deadline."""
    return number(row.tokens_per_frame, "d") if row.deadline_ms is None else f"{row.deadline_ms:g} ms"


def _steps(row: Row) -> str:
    """The (a, b) of a row's medians, and those of its 95 % quantiles if they differ."""
    median, p95 = (
        "({}, {})".format(*(steps_in(ms, _CONTROL_HZ) for ms in each))
        for each in ((row.action_ms_p50, row.frame_ms_p50), (row.action_ms_p95, row.frame_ms_p95))
    )
    return median if median == p95 else f"{median} ({p95[1:-1]})"


def _digits(value: float | None) -> str:
    """Three significant digits."""
    return number(value, ".2f" if value is None or value < 10 else ".1f" if value < 100 else ".0f")


_COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "mode": lambda row: row.mode,
    "k": _k,
    "adapter": lambda row: row.adapter,
    "action\np50, ms": lambda row: _digits(row.action_ms_p50),
    "action\np95": lambda row: _digits(row.action_ms_p95),
    "frame\np50, ms": lambda row: _digits(row.frame_ms_p50),
    "frame\np95": lambda row: _digits(row.frame_ms_p95),
    "times\nisolated": lambda row: number(row.speedup_over_isolated, ".2f"),
    "95 %\ninterval": lambda row: "{:.2f}–{:.2f}".format(*row.speedup_ci95) if row.speedup_ci95 else "–",
    "pre-\ndicted": lambda row: number(row.predicted_speedup, ".2f"),
    "attained": lambda row: number(row.attained_fraction, ".0f", " %", scale=100),
    "stage\nshare": lambda row: number(row.predicted_over_frame, ".0f", " %", scale=100),
    "actions\nper s": lambda row: _digits(row.actions_per_s),
    "tokens\nper s": lambda row: _digits(row.tokens_per_s or None),
}
_TAIL_COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "mode": lambda row: row.mode,
    "k": _k,
    "adapter": lambda row: row.adapter,
    "action\np99": lambda row: _digits(row.action_ms_p99),
    "frame\np99": lambda row: _digits(row.frame_ms_p99),
    "first\ntoken\np50": lambda row: _digits(row.first_token_ms_p50),
    "\np99": lambda row: _digits(row.first_token_ms_p99),
    "whole\ntext\np50": lambda row: _digits(row.request_ms_p50),
    "p99": lambda row: _digits(row.request_ms_p99),
    "chunks\nper s": lambda row: _digits(row.chunks_per_s),
    "memory\nGiB": lambda row: number(row.needed_memory_bytes, ".2f", scale=2**-30),
}
_WIDE_ONLY = ("action\np95", "frame\np95", "95 %\ninterval", "stage\nshare")


def print_rows(rows: Sequence[Row], console: Console) -> None:
    """Print the tables of each workload among `rows`, in order, and warnings."""
    for title, group in itertools.groupby(rows, key=lambda row: row.title):
        workload = list(group)
        without = set() if console.width >= WIDTH else set(_WIDE_ONLY)
        if all(row.adapter == OFF for row in workload):
            without.add("adapter")
        for columns, above in ((_COLUMNS, title), (_TAIL_COLUMNS, None)):
            table = _new_table(above)
            shown = {name: cell for name, cell in columns.items() if name not in without}
            for name in shown:
                table.add_column(name, justify="left" if name == "mode" else "right", no_wrap=True)
            for row in workload:
                cells = [cell(row) for cell in shown.values()]
                table.add_row(*cells, style="bold" if row.mode == "unified" else None)
            console.print(table)
    console.print(_LEGEND, style="dim")
    if one_robot := [row for row in rows if row.robots == 1]:
        steps = "; ".join(f"{row.label}: {_steps(row)}" for row in one_robot)
        console.print(f"(a, b) in control steps at {_CONTROL_HZ:g} Hz, medians (p95): {steps}. {_STEPS_NOTE}")
    if any(row.actions_equal for row in rows) and not any(row.actions_equal is False for row in rows):
        console.print("The actions of all configurations of a workload are equal, bit for bit.", style="dim")
    for warning in warnings_of(rows):
        console.print(warning, style="red")


def _new_table(title: str | None) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def by_label(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each mode and token budget, by tokens per second."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.label, row.tokens_per_s)):
        groups.setdefault(row.label, []).append(row)
    return groups


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
    if dropped := [row for row in rows if row.requests_dropped]:
        each = ", ".join(
            f"{row.requests_dropped} of {row.requests_submitted} by {row.label}" for row in dropped
        )
        found.append(f"Texts were dropped for lack of slots: {each}.")
    busiest = max(rows, key=lambda row: row.hardware["load_average"][0])
    load, cores = busiest.hardware["load_average"][0], busiest.hardware["cores"]
    if busiest.device == "cpu" and load > 0.5 * cores:
        found.append(f"The machine was busy before the benchmark began: load {load} on {cores} cores.")
    return found


def print_roofline(stages: Sequence[Mapping[str, Any]], peaks: Peaks, title: str, console: Console) -> None:
    """Print each stage's floor and time, as a roofline's record has them."""
    table = _new_table(title)
    table.add_column("stage")
    for name in ("GFLOP", "MB", "bound by", "floor, ms", "measured, ms", "measured / floor"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in stages:
        table.add_row(
            stage["name"],
            f"{stage['flops'] / 1e9:,.2f}",
            f"{stage['bytes'] / 1e6:,.1f}",
            stage["bound"],
            _digits(stage["floor_ms"]),
            _digits(stage["measured_ms"]),
            number(stage["measured_over_floor"], ".2f"),
        )
    console.print(table)
    tera, giga = peaks.flops_per_s / 1e12, peaks.bytes_per_s / 1e9
    console.print(f"Peaks: {tera:.3g} TFLOP/s, {giga:,.0f} GB/s; {peaks.source}.", style="dim")


def open_console() -> Console:
    """A console for the terminal, or else as wide as the tables."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)
