"""The page and the figures of a benchmark's rows: speed-up over `isolated`, and actions against tokens."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.bench.row import Row
from eval.bench.table import LABEL, TAILS, TIMES, by_label, by_workload, warnings_of
from eval.report.figures import COLOURS, STYLE, new_figure
from eval.report.pages.reported_runs import format_code, format_machine
from eval.report.pages.site import ChartLine, chart_group, line_chart, swatch, write_page
from eval.report.table import Column, Table

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
    mode = dataclasses.replace(LABEL[0], html=lambda row: swatch(row.mode, COLOURS[row.mode]))
    work = Column(heading="workload", cell=lambda row: row.work, align="left", choices=True, groups=True)
    workload = [work] if len(by_workload(rows)) > 1 else []
    content = {
        "title": f"{first.policy}, {first.dtype}, on {first.device}",
        "rows": Table(columns=[*workload, mode, *LABEL[1:], *TIMES, *TAILS], groups=[rows]),
        "warnings": warnings_of(rows),
        "facts": facts,
        "plots": {"charts": _charts(rows)},
    }
    return write_page(folder, "bench.html.j2", content)


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
    points = {
        label: [(row.tokens_per_s, *[row.actions_per_s] * 3) for row in group]
        for label, group in by_label(rows).items()
    }
    tradeoff = _lines(points, "tokens per second", "actions per second")
    return [*found, *chart_group("actions against tokens: up and to the right is better", tradeoff)]


def _speedup(row: Row) -> tuple[float, float, float] | None:
    value = row.speedup_over_isolated
    if value is None:
        return None
    low, high = row.speedup_ci95 or (value, value)
    return value, low, high


def _over_budget(workload: Sequence[Row], measure: Measure, y: str) -> dict[str, Any] | None:
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


def _lines(points: Mapping[str, Sequence[Any]], x: str, y: str) -> dict[str, Any] | None:
    """A chart with a line for each label, which begins with a mode."""
    lines = [
        ChartLine(label=label, colour=COLOURS[label.partition(",")[0]], points=each)
        for label, each in points.items()
    ]
    return line_chart(lines, x=x, y=y)


def draw(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Draw the figures as PNG and SVG to paths that begin with `stem`; returns the paths.

    Without `isolated` among the modes there is no speed-up figure.
    """
    import matplotlib as mpl

    written = []
    with mpl.rc_context(STYLE):
        faster = [group for group in by_workload(rows) if any(row.speedup_over_isolated for row in group)]
        figures = {"speedup": _speedup_figure(faster)} if faster else {}
        for name, figure in {**figures, "tradeoff": _tradeoff_figure(rows)}.items():
            for suffix, metadata in ((".png", {}), (".svg", {"Date": None})):
                path = stem.with_name(f"{stem.name}_{name}{suffix}")
                figure.savefig(path, metadata=metadata, bbox_inches="tight")
                written.append(path)
    return written


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
    _title(figure, workloads[0][0], "Speed-up of a frame; black mark: predicted from stage times")
    return figure


def _tradeoff_figure(rows: Sequence[Row]) -> "Figure":
    """Actions per second against tokens per second; a line joins the workloads of a configuration.

    Within one workload each query requests the same texts, so its points lie on a ray from the origin.
    """
    figure = new_figure(8.4, 5.2)
    panel = figure.subplots()
    curves = list(by_label(rows).values())
    for curve in curves:
        xs, ys = [row.tokens_per_s for row in curve], [row.actions_per_s for row in curve]
        panel.plot(xs, ys, "o-", color=COLOURS[curve[0].mode], markersize=7, linewidth=1.2)
    panel.set(xlim=(0, None), ylim=(0, None))
    panel.set_xlabel("tokens per second")
    panel.set_ylabel("actions per second (horizon × chunks)")
    # Labels at the right margin without overlap, each with a line to its curve's last point.
    place, gap, right = math.inf, panel.get_ylim()[1] / 17, 1.03 * panel.get_xlim()[1]
    for last in sorted((curve[-1] for curve in curves), key=lambda row: -row.actions_per_s):
        place, colour = min(last.actions_per_s, place - gap), COLOURS[last.mode]
        panel.annotate(
            last.label,
            (last.tokens_per_s, last.actions_per_s),
            xytext=(right, place),
            va="center",
            color=colour,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "alpha": 0.5},
        )
    _title(figure, rows[0], "Actions against tokens: up and to the right is better")
    return figure


def _title(figure: "Figure", row: Row, text: str) -> None:
    machine = row.hardware["processor"] if row.device == "cpu" else row.device
    figure.suptitle(f"{text}\n{row.policy}, {row.dtype}, {machine}", x=0.01, ha="left", fontsize=12)
