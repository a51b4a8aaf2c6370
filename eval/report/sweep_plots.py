"""Charts of a sweep (the surface over (a, b), success over latency), as figures and on its page.

Lines join cells that differ in their clock alone.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from configs.assets import badged
from contracts.errors import pluralize
from eval.metrics.sweep_rows import Cell, SweepRecord
from eval.records.run_folders import SweepFolder
from eval.report.figures import COLOURS, OTHER_COLOURS, Chart, Line, draw_charts, save_figure
from eval.report.pages.reported_runs import format_code, format_machine
from eval.report.pages.run_report import REPORT
from eval.report.pages.site import chart_group, write_page
from eval.report.sweep_table import (
    assets_of,
    columns_of,
    episodes_of,
    format_cell,
    format_margins,
    format_value,
    group_by,
    is_judged,
)
from eval.report.table import Table, to_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MIN_LATENCIES = 3  # a sweep whose lines all have fewer points has no curve

Point = tuple[float, float, float]
"""A value and the bounds of its interval."""
Measure = Callable[[Cell], Point | None]
_LineOf = tuple[str, str, Sequence[Cell]]
"""Label and colour of a line, and its cells."""
Charts = Mapping[str, Sequence[Chart]]
"""Motion to a chart of success and one of a time."""


def _mean(mean: float | None, interval: Sequence[float] | None) -> Point | None:
    if mean is None:
        return None
    low, high = interval or (mean, mean)
    return mean, low, high


def _charts(
    groups: Sequence[_LineOf], x: tuple[str, Callable[[Cell], float]], time: tuple[str, Measure]
) -> Charts:
    """The charts of every motion, whose axes are given by label and measure."""
    x_label, x_of = x
    motions: dict[str, list[_LineOf]] = {}
    for group in groups:
        motions.setdefault(format_value("motion", group[2][0].options), []).append(group)

    def chart(groups: Sequence[_LineOf], y: str, measure: Measure) -> Chart:
        lines = []
        for label, colour, rows in groups:
            ordered = sorted(rows, key=x_of)
            points = [(x_of(row), *point) for row in ordered if (point := measure(row)) is not None]
            lines.append(Line(label=label, colour=colour, points=points))
        return Chart(x=x_label, y=y, lines=lines, is_percent=measure is _success)

    return {
        motion: [chart(lines, "episodes solved (%)", _success), chart(lines, *time)]
        for motion, lines in motions.items()
    }


def _success(row: Cell) -> Point | None:
    return _mean(row.pc_success, row.pc_success_ci95)


def over_latency(record: SweepRecord) -> Charts:
    """A line for every combination of options other than the clock that has several latencies.

    Lines of several motions that differ in nothing else have the same label and colour.
    """

    def latency_of(row: Cell) -> float:
        return row.charged_ms.actions if row.charged_ms else 0.0

    others = [axis for axis in record.varied if axis != "clock"]
    groups = group_by(record.cells, others)
    groups = [group for group in groups if 1 < len(set(map(latency_of, group))) == len(group)]
    modes = dict.fromkeys(group[0].mode for group in groups)
    labels = [format_cell(group[0].options, others, with_mode=len(modes) > 1) for group in groups]
    told_apart = len(modes) == len(set(labels)) > 1
    places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    lines = []
    for group, label in zip(groups, labels, strict=True):
        mode = group[0].mode
        colour = COLOURS[mode] if told_apart else OTHER_COLOURS[places[label] % len(OTHER_COLOURS)]
        lines.append((label or mode, colour, group))
    return _charts(
        lines,
        ("latency until the actions (ms)", latency_of),
        (
            "mean time to success (s)",
            lambda row: _mean(getattr(row.time_to_success_s, "mean", None), row.time_to_success_ci95),
        ),
    )


def over_interval(record: SweepRecord) -> Charts:
    """The response surface: a line over b for every a, which an episode without texts of its own depends on.

    Of cells in mode `actions`, without an option for texts in prompts, in which every query has the same a
    and b. They continue the previous chunk while waiting, and skip what is late of a new one.
    """
    rule = {"mode": "actions", "feedback": None, "while_waiting": "continue", "overlap": "skip"}
    found: dict[tuple[str, float], list[Cell]] = {}
    intervals: dict[str, float] = {}
    for row in record.cells:
        constant = None if row.control_steps is None else row.control_steps.constant
        if constant and all(row.options.get(axis) == value for axis, value in rule.items()):
            found.setdefault((format_value("motion", row.options), constant[0]), []).append(row)
            intervals[row.run] = constant[1]
    delays = sorted({a for _, a in found})
    colours = dict(zip(delays, OTHER_COLOURS * (1 + len(delays) // len(OTHER_COLOURS)), strict=False))
    lines = [
        (f"a = {a:g}", colours[a], found[motion, a]) for motion, a in sorted(found, key=lambda at: at[1])
    ]
    return _charts(
        lines,
        ("b: control steps until the next query", lambda row: intervals[row.run]),
        (
            "restricted mean time (s)",
            lambda row: _mean(row.restricted_mean_s, row.restricted_mean_ci95),
        ),
    )


def draw_sweep(record: SweepRecord, folder: Path) -> None:
    """Draw the figures that a finished sweep has cells for, as PNG files."""
    save_figure(folder / "sweep_surface.png", lambda: draw_surface([record]))
    save_figure(folder / "sweep_latency.png", lambda: _latency_figure(record))


def _has_curve(charts: Sequence[Chart]) -> bool:
    return max(len(line.points) for line in charts[0].lines) >= _MIN_LATENCIES


def draw_surface(records: Sequence[SweepRecord]) -> "Figure | None":
    """Success above restricted mean time over b, a column for every condition and a line for every a.

    Of sweeps of one policy. None if no line has enough points.
    """
    columns = {
        f"{', '.join(record.config.suites)}, {motion}": charts
        for record in records
        for motion, charts in over_interval(record).items()
        if _has_curve(charts)
    }
    if not columns:
        return None
    title, legend = _title("What acting depends on", records), "control steps until actions arrive"
    return draw_charts(columns, (2.2 + 3.2 * len(columns), 5.6), title=title, legend=legend)


def _latency_figure(record: SweepRecord) -> "Figure | None":
    """Success above time to success, a column for every motion; a line for every other combination."""
    charts = over_latency(record)
    if not any(map(_has_curve, charts.values())):
        return None
    columns = charts if "motion" in record.varied else {"": next(iter(charts.values()))}
    size = 2.6 + 4.6 * len(columns), 6.4
    return draw_charts(columns, size, title=_title("Success over latency", [record]), dashed=True)


def _title(text: str, records: Sequence[SweepRecord]) -> str:
    policy = records[0].provenance.policy
    episodes = " or ".join(map(str, sorted({episodes_of(record) for record in records})))
    title = f"{text}\n{policy}, {episodes} episodes a cell, 95 % intervals"
    return badged(title, *map(assets_of, records))


def write_sweep_page(folder: SweepFolder, record: SweepRecord, page_folder: Path | None = None) -> Path:
    """Write the page of a finished sweep from its `sweep.json`, by default to `report` in its folder.

    Raises:
        UsageError: The folder cannot be written.
    """
    target = folder.path / REPORT if page_folder is None else page_folder
    cells, episodes = pluralize(len(record.cells), "cell"), pluralize(episodes_of(record), "episode")
    provenance = record.provenance
    weights = provenance.weights_sha256
    what = f"{provenance.policy} on {', '.join(record.config.suites)}"

    def link(row: Cell) -> str | None:
        page = folder.path / row.run / REPORT / "index.html"
        return quote(Path(os.path.relpath(page, target)).as_posix()) if page.is_file() else None

    table = Table(columns=columns_of(record, link), groups=[record.cells])
    charts: list[dict[str, Any]] = []
    for motion, pair in [*over_latency(record).items(), *over_interval(record).items()]:
        under = f", {motion}" if "motion" in record.varied else ""
        charts += chart_group(f"over {pair[0].x}{under}", *pair)
    content = {
        "title": f"{badged(what, assets_of(record))}: {cells} of {episodes}",
        "facts": {
            "Policy": f"{provenance.policy}{f', weights {weights[:12]}' if weights else ''}",
            "Assets": badged(assets_of(record), assets_of(record)),
            "Margins": format_margins(record),
            "Machine": format_machine(provenance.hardware or {}),
            "Code": format_code(vars(provenance)),
            "Finished": str(record.finished or "not recorded"),
            "Command": str(provenance.command),
        },
        "cells": table,
        "is_judged": is_judged(record),
        "plots": {"charts": charts},
    }
    return write_page(target, "sweep.html.j2", content, **{"cells.csv": to_csv(table.records())})
