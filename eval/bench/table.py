"""The benchmark's terminal output: progress, two tables per workload, the roofline; 110 columns wide."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from configs.latency import steps_in
from eval.bench.costs import Peaks
from eval.bench.roofline import StageCost
from eval.bench.row import Row, WorkloadInfo
from eval.bench.rows import Ratio
from eval.bench.workloads import OFF, capacity_label, configuration_label, plural, robots_label
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


def _ms(value: float | None) -> str:
    """Three significant digits."""
    return number(value, ".2f" if value is None or value < 10 else ".1f" if value < 100 else ".0f")


_COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "mode": lambda row: row.mode,
    "k": _k,
    "adapter": lambda row: row.adapter,
    "action\np50, ms": lambda row: _ms(row.action_ms_p50),
    "action\np95": lambda row: _ms(row.action_ms_p95),
    "frame\np50, ms": lambda row: _ms(row.frame_ms_p50),
    "frame\np95": lambda row: _ms(row.frame_ms_p95),
    "times\nisolated": lambda row: number(row.speedup_over_isolated, ".2f"),
    "95 %\ninterval": lambda row: "{:.2f}–{:.2f}".format(*row.speedup_ci95) if row.speedup_ci95 else "–",
    "pre-\ndicted": lambda row: number(row.predicted_speedup, ".2f"),
    "attained": lambda row: number(row.attained_fraction, ".0f", " %", scale=100),
    "stage\nshare": lambda row: number(row.predicted_over_frame, ".0f", " %", scale=100),
    "actions\nper s": lambda row: f"{row.actions_per_s:.1f}",
    "tokens\nper s": lambda row: number(row.tokens_per_s or None, ".1f"),
}
_TAIL_COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "mode": lambda row: row.mode,
    "k": _k,
    "adapter": lambda row: row.adapter,
    "action\np99": lambda row: _ms(row.action_ms_p99),
    "frame\np99": lambda row: _ms(row.frame_ms_p99),
    "first\ntoken\np50": lambda row: _ms(row.first_token_ms_p50),
    "\np99": lambda row: _ms(row.first_token_ms_p99),
    "whole\ntext\np50": lambda row: _ms(row.request_ms_p50),
    "p99": lambda row: _ms(row.request_ms_p99),
    "chunks\nper s": lambda row: f"{row.chunks_per_s:.1f}",
    "memory\nGiB": lambda row: number(row.needed_memory_bytes, ".2f", scale=2**-30),
}
_WIDE_ONLY = ("action\np95", "frame\np95", "95 %\ninterval", "stage\nshare")


def print_rows(rows: Sequence[Row], console: Console) -> None:
    """Print the tables of each workload among `rows`, in order, and warnings."""
    for _, group in itertools.groupby(rows, key=workload_of):
        workload = list(group)
        first, is_wide = workload[0], console.width >= WIDTH
        title = f"{first.policy}, {first.dtype}, {first.device}: {heading(first)}"
        without = set() if is_wide else set(_WIDE_ONLY)
        if all(row.adapter == OFF for row in workload):
            without.add("adapter")
        for number_, cells in enumerate((_COLUMNS, _TAIL_COLUMNS)):
            columns = {name: cell for name, cell in cells.items() if name not in without}
            console.print(_table(workload, columns, title if number_ == 0 else None))
    console.print(_LEGEND, style="dim")
    if one_robot := [row for row in rows if row.robots == 1]:
        steps = "; ".join(f"{row_label(row)}: {_steps(row)}" for row in one_robot)
        console.print(f"(a, b) in control steps at {_CONTROL_HZ:g} Hz, medians (p95): {steps}. {_STEPS_NOTE}")
    if any(row.actions_equal for row in rows) and not _unequal(rows):
        console.print("The actions of all configurations of a workload are equal, bit for bit.", style="dim")
    for warning in warnings_of(rows):
        console.print(warning, style="red")


def workload_of(row: Row) -> tuple[object, ...]:
    """Equal for rows of the same table."""
    model = (row.policy, row.dtype, row.device)
    served = (row.robots, row.cameras, row.slots, row.rows)
    return (*model, row.denoise_steps, row.text_tokens, row.arrivals, row.shortest_prompt, *served)


def heading(row: Row) -> str:
    """Describes a row's workload."""
    robots = robots_label(row.robots, row.cameras)
    capacity = capacity_label(row.slots, row.rows)
    prompts = "" if row.shortest_prompt is None else f", prompts from {row.shortest_prompt} tokens"
    steps = f"{row.denoise_steps} denoise steps"
    return f"N = {row.text_tokens}, {row.arrivals}, {steps}, {robots}{capacity}{prompts}"


def _table(
    rows: Sequence[Row], columns: Mapping[str, Callable[[Row], str]], title: str | None = None
) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="left" if name == "mode" else "right", no_wrap=True)
    for row in rows:
        cells = [cell(row) for cell in columns.values()]
        table.add_row(*cells, style="bold" if row.mode == "unified" else None)
    return table


def _unequal(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.actions_equal is False]


def row_label(row: Row) -> str:
    """The mode and token budget of a row."""
    return configuration_label(row.mode, row.tokens_per_frame, row.deadline_ms, row.adapter)


def by_label(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each mode and token budget, by tokens per second."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row_label(row), row.tokens_per_s)):
        groups.setdefault(row_label(row), []).append(row)
    return groups


def warnings_of(rows: Sequence[Row]) -> list[str]:
    """Reasons not to trust the measurements."""
    found = []
    if unequal := _unequal(rows):
        found.append(
            f"{len(unequal)} configurations gave other actions than the rest of their workload, so their "
            f"times are not comparable: {', '.join(row_label(row) for row in unequal)}."
        )
    if any(row.multi_process_service is False for row in rows):
        found.append(
            "parallel: NVIDIA's multi-process service did not run, so the two processes' kernels took turns."
        )
    if compiled := sum(row.compiles_after_warmup > 0 for row in rows):
        found.append(f"{compiled} configurations compiled something while they were measured.")
    if dropped := [row for row in rows if row.requests_dropped]:
        each = ", ".join(
            f"{row.requests_dropped} of {row.requests_submitted} by {row_label(row)}" for row in dropped
        )
        found.append(f"Texts were dropped for lack of slots: {each}.")
    busiest = max(rows, key=lambda row: row.hardware["load_average"][0])
    load, cores = busiest.hardware["load_average"][0], busiest.hardware["cores"]
    if busiest.device == "cpu" and load > 0.5 * cores:
        found.append(f"The machine was busy before the benchmark began: load {load} on {cores} cores.")
    return found


def print_roofline(stages: Sequence[StageCost], peaks: Peaks, title: str, console: Console) -> None:
    """Print each stage's floor and time."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("stage")
    for name in ("GFLOP", "MB", "bound by", "floor, ms", "measured, ms", "measured / floor"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in stages:
        table.add_row(
            stage.name,
            f"{stage.flops / 1e9:,.2f}",
            f"{stage.bytes / 1e6:,.1f}",
            stage.bound,
            _ms(stage.floor_ms),
            _ms(stage.measured_ms),
            number(stage.over_floor, ".2f"),
        )
    console.print(table)
    tera, giga = peaks.flops_per_s / 1e12, peaks.bytes_per_s / 1e9
    console.print(f"Peaks: {tera:.3g} TFLOP/s, {giga:,.0f} GB/s; {peaks.source}.", style="dim")


def print_growth(rows: Sequence[int], growth: Ratio, console: Console) -> None:
    """Print how a decode step grows from the smallest batch to the largest."""
    smallest, *_, largest = rows
    bounds = growth.ci95
    interval = "" if bounds is None else f" (95 %: {bounds.low:.2f}–{bounds.high:.2f})"
    console.print(f"decode {largest} takes {growth.value:.2f} times as long as decode {smallest}{interval}.")


def open_console() -> Console:
    """A console for the terminal, or else as wide as the tables."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


class Terminal:
    """Terminal output of one benchmark. The bar counts runs: each configuration's repetitions and warm-up."""

    def __init__(self, info: WorkloadInfo, path: Path, *, console: Console | None = None) -> None:
        self._console = console or open_console()
        self._info = info
        self._path = path
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._bar = self._progress.add_task("", total=None)

    def announce(self, configurations: int, *, skipped: int, existing: int) -> None:
        """Print the policy and the number of configurations."""
        info = self._info
        self._print(
            f"[bold]{info.policy}[/], {info.dtype}, weights {info.weights}, on {info.device}: "
            f"{plural(configurations, 'configuration')} → {self._path}"
        )
        if skipped:
            self._print(f"Skipping {plural(skipped, 'configuration')} that the file already has.")
        elif existing:
            self._print(f"The file already has {plural(existing, 'row')}; new ones are appended.")

    def compare_commits(self, existing: Sequence[Row], commit: str | None) -> None:
        """Warn of existing rows that were measured on another commit."""
        if others := [row for row in existing if row.commit != commit]:
            commits = ", ".join(sorted({_short(row.commit) for row in others}))
            self._print(
                f"[red]{plural(len(others), 'row')} from other code ({commits}; this is {_short(commit)}); "
                "without --resume everything is measured again.[/]"
            )

    def start(self, runs: int) -> None:
        """Set the length of the bar."""
        self._progress.update(self._bar, total=runs)

    def workload(self, description: str) -> None:
        """Show the current workload."""
        self._progress.update(self._bar, description=description)

    def advance(self) -> None:
        """Count one finished run."""
        self._progress.advance(self._bar)

    def interrupted(self, rows: int) -> None:
        """Print the number of saved rows, and how to resume."""
        self._print(f"Interrupted: {plural(rows, 'row')} of this run are in {self._path}.")
        self._print("The same command with --output and --resume measures the rest.")

    def report(self, rows: Sequence[Row], pictures: Sequence[Path], *, took_s: float) -> None:
        """Print the tables, the files written, and the seconds taken."""
        self._progress.stop()
        print_rows(rows, self._console)
        self._print(f"Rows: {self._path}")
        if pictures:
            self._print(f"Page and plots: {', '.join(str(path) for path in pictures)}")
        else:
            self._print("No page and no plots: jinja2 or matplotlib is not installed.")
        self._print(f"It took {took_s:.0f} s.")

    def saved(self, profile: Path) -> None:
        """Print the path of the latency profile, and how to use it."""
        self._print(f"Profile: {profile}; `--clock profile:{profile}` charges its latencies.")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def _short(commit: str | None) -> str:
    return "no commit" if commit is None else commit[:10]
