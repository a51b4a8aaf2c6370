"""The page of a benchmark's rows: speed-up over k per workload, actions against tokens, and a table."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eval.bench.row import Row
from eval.bench.table import by_label, warnings_of
from eval.report.figures import COLOURS
from eval.report.pages.charts import ChartLine, ChartPoint, chart_group, line_chart
from eval.report.pages.reported_runs import format_code, format_machine
from eval.report.pages.site import write_page

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
    content = {
        "title": f"{first.policy}, {first.dtype}, on {first.device}",
        "rows": rows,
        "several": len({row.title for row in rows}) > 1,
        "by_deadline": any(row.deadline_ms is not None for row in rows),
        "colours": COLOURS,
        "warnings": warnings_of(rows),
        "facts": facts,
        "plots": {"charts": _charts(rows)},
    }
    return write_page(folder, "bench.html.j2", content)


def _charts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For every workload speed-up and action latency over k; then actions against tokens."""
    found = []
    for _, group in itertools.groupby(rows, key=lambda row: row.title):
        workload = list(group)
        speedup = _over_budget(workload, _speedup, "times faster than isolated")
        latency = _over_budget(workload, _action_ms, "action p50, to p95 (ms)")
        found += chart_group(workload[0].work, speedup, latency)
    lines = [
        ChartLine(label=label, colour=COLOURS[group[0].mode], points=[_rates(row) for row in group])
        for label, group in by_label(rows).items()
    ]
    tradeoff = line_chart(lines, x="tokens per second", y="actions per second")
    return [*found, *chart_group("actions against tokens: up and to the right is better", tradeoff)]


def _over_budget(workload: Sequence[Row], measure: Measure, y: str) -> dict[str, Any] | None:
    """The modes over the token budget; modes without one are level lines."""
    budgets = [budget for row in workload if (budget := _budget(row)) is not None]
    ends = (min(budgets), max(budgets)) if budgets else (1.0, 1.0)
    lines = []
    for mode in dict.fromkeys(row.mode for row in workload):
        points = []
        for row in (row for row in workload if row.mode == mode):
            measured, budget = measure(row), _budget(row)
            if measured is not None:
                middle, low, high = measured
                places = dict.fromkeys(ends) if budget is None else [budget]
                points += [ChartPoint(x=x, y=middle, low=low, high=high) for x in places]
        points.sort(key=lambda point: point.x)
        lines.append(ChartLine(label=mode, colour=COLOURS[mode], points=points))
    by_deadline = any(row.deadline_ms is not None for row in workload)
    x = "deadline of a frame (ms)" if by_deadline else "tokens per frame, k"
    return line_chart(lines, x=x, y=y)


def _budget(row: Row) -> float | None:
    return row.deadline_ms if row.deadline_ms is not None else row.tokens_per_frame


def _speedup(row: Row) -> tuple[float, float, float] | None:
    if (value := row.speedup_over_isolated) is None:
        return None
    low, high = row.speedup_ci95 or (value, value)
    return value, low, high


def _action_ms(row: Row) -> tuple[float, float, float]:
    return row.action_ms_p50, row.action_ms_p50, row.action_ms_p95


def _rates(row: Row) -> ChartPoint:
    return ChartPoint(x=row.tokens_per_s, y=row.actions_per_s, low=row.actions_per_s, high=row.actions_per_s)
