"""The page of a benchmark's rows, and the figure of the speed-up over `isolated`."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.bench.row import Row
from eval.bench.table import TAILS, TIMES, by_workload, rows_table, warnings_of
from eval.report.figures import COLOURS, Chart, Line, new_figure, save_figure
from eval.report.pages.reported_runs import format_code, format_machine
from eval.report.pages.site import chart_group, swatch, write_page
from eval.report.table import to_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Measure = Callable[[Row], tuple[float, float, float] | None]
"""Maps a row to a value and the bounds of its interval; None if it has none."""


def write_bench_page(rows: Sequence[Row], folder: Path) -> Path:
    """Write the page of a benchmark's rows to a folder; returns its path.

    Raises:
        UsageError: The folder cannot be written.
    """
    first = rows[0]
    facts = {
        "Policy": f"{first.policy}, weights {first.weights}, {first.dtype}",
        "Device": first.device,
        "Queries": f"{first.repetitions} repetitions of {first.queries}",
        "Machine": format_machine(first.hardware),
        "Code": format_code(
            {"git": {"commit": first.commit, "dirty": first.dirty}, "versions": first.versions}
        ),
        "Written": first.written_at,
        "Command": first.command,
    }
    table = rows_table(rows, [*TIMES, *TAILS], mode=lambda row: swatch(row.mode, COLOURS[row.mode]))
    content = {
        "title": f"{first.policy}, {first.dtype}, on {first.device}",
        "rows": table,
        "warnings": warnings_of(rows),
        "facts": facts,
        "plots": {"charts": _charts(rows)},
    }
    return write_page(folder, "bench.html.j2", content, **{"rows.csv": to_csv(table.records())})


def _charts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For every workload speed-up and action latency over k; then actions against tokens."""
    found = []
    for workload in by_workload(rows):
        speedup = _over_budget(workload, _speedup, "times faster than isolated")
        latency = _over_budget(
            workload,
            lambda row: (row.action_ms_p50, row.action_ms_p50, row.action_ms_p95),
            "action p50, to p95 (ms)",
        )
        found += chart_group(workload[0].work, speedup, latency)
    points: dict[str, list[tuple[float, ...]]] = {}
    for row in sorted(rows, key=lambda row: (row.label, row.tokens_per_s)):
        points.setdefault(row.label, []).append((row.tokens_per_s, *[row.actions_per_s] * 3))
    tradeoff = _lines(points, "tokens per second", "actions per second")
    return [*found, *chart_group("actions against tokens: up and to the right is better", tradeoff)]


def _speedup(row: Row) -> tuple[float, float, float] | None:
    value = row.speedup_over_isolated
    if value is None:
        return None
    low, high = row.speedup_ci95 or (value, value)
    return value, low, high


def _over_budget(workload: Sequence[Row], measure: Measure, y: str) -> Chart:
    """The modes and adapters over deadlines if there are any, else over k; rows without are level lines."""
    budget_of = "deadline_ms" if any(row.deadline_ms is not None for row in workload) else "tokens_per_frame"
    budgets = [each for row in workload if (each := getattr(row, budget_of)) is not None] or [1.0]
    points: dict[str, list[tuple[float, ...]]] = {}
    for row in workload:
        budget, label = getattr(row, budget_of), row.label
        places = {budget} if budget is not None else {min(budgets), max(budgets)}
        if budget is not None:
            label = dataclasses.replace(row, deadline_ms=None, tokens_per_frame=None).label
        if (measured := measure(row)) is not None:
            points.setdefault(label, []).extend((place, *measured) for place in places)
    x = "deadline of a frame (ms)" if budget_of == "deadline_ms" else "tokens per frame, k"
    return _lines({label: sorted(each) for label, each in points.items()}, x, y)


def _lines(points: Mapping[str, Sequence[Any]], x: str, y: str) -> Chart:
    """A chart with a line for each label, which begins with a mode."""
    lines = [
        Line(label=label, colour=COLOURS[label.partition(",")[0]], points=each)
        for label, each in points.items()
    ]
    return Chart(x=x, y=y, lines=lines)


def draw(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Draw the speed-ups as PNG and SVG to paths that begin with `stem`; returns the paths.

    None without `isolated` among the modes.
    """
    faster = [group for group in by_workload(rows) if any(row.speedup_over_isolated for row in group)]
    paths = [stem.with_name(f"{stem.name}_speedup{suffix}") for suffix in (".png", ".svg") if faster]
    return [written for path in paths for written in save_figure(path, lambda: _speedup_figure(faster))]


def _speedup_figure(workloads: Sequence[Sequence[Row]]) -> "Figure":
    """A panel per workload, a bar with its interval per configuration, and a mark for the prediction."""
    panel_rows = [[row for row in group if row.mode != "actions"] for group in workloads]
    heights = [0.42 * len(group) + 0.75 for group in panel_rows]
    figure = new_figure(8.4, sum(heights) + 0.9)
    panels = figure.subplots(len(panel_rows), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for panel, rows in zip(panels, panel_rows, strict=True):
        panel.set_title(rows[0].work)
        panel.axvline(1.0, color="#999999", linewidth=0.8, zorder=0)
        longest = 1.0
        for place, row in enumerate(rows):
            value = row.speedup_over_isolated or math.nan
            low, high = row.speedup_ci95 or (value, value)
            panel.barh(place, value, height=0.62, color=COLOURS[row.mode])
            panel.plot([low, high], [place, place], color="#222222", linewidth=1.2)
            if row.predicted_speedup is not None and row.mode != "isolated":
                mark = [place - 0.36, place + 0.36]
                panel.plot([row.predicted_speedup] * 2, mark, color="black", linewidth=2.4)
            end = max(value, high, row.predicted_speedup or 0.0)
            longest = max(longest, end)
            label = {"xytext": (7, 0), "textcoords": "offset points", "va": "center"}
            panel.annotate(f"{value:.2f}×", (end, place), **label)
        panel.set_yticks(range(len(rows)), [row.label for row in rows])
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.set_xlim(0, 1.14 * longest)
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
    panels[-1].set_xlabel("times faster than isolated, mean frame")
    row = workloads[0][0]
    machine = row.hardware["processor"] if row.device == "cpu" else row.device
    title = "Speed-up of a frame; black mark: predicted from stage times"
    figure.suptitle(f"{title}\n{row.policy}, {row.dtype}, {machine}", x=0.01, ha="left", fontsize=12)
    return figure
