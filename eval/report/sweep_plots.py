"""Figures of a sweep (the surface over (a, b), success over latency) and its page.

Figures and the page show the same lines: cells that differ in their clock alone.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from configs.assets import badged
from contracts.errors import pluralize
from eval.records.run_folders import SweepFolder
from eval.report.figures import COLOURS, OTHER_COLOURS, STYLE, new_figure
from eval.report.pages.reported_runs import format_code, format_machine
from eval.report.pages.run_report import REPORT
from eval.report.pages.site import ChartLine, chart_group, line_chart, write_page
from eval.report.sweep_table import (
    Record,
    Row,
    assets_of,
    columns_of,
    episodes_of,
    format_cell,
    format_margins,
    format_value,
    group_by,
    is_judged,
    text_columns,
)
from eval.report.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MIN_LATENCIES = 3  # a sweep whose lines all have fewer points has no curve
_STYLES = ("-", "--", ":", "-.")
_APART = 0.006
"""Offset between lines, as a share of the largest latency, so that their intervals do not overlap."""

Point = tuple[float, float, float]
"""A value and the bounds of its interval."""


_LinePair = tuple[ChartLine, ChartLine]
"""Success and a time of the same cells."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinePlot:
    """Success, and a time, over what the clock of a cell determines."""

    x_label: str  # what x is, with its unit
    time_label: str  # what the time is, with its unit
    # Motion to its lines of success and of the time; those of a line differ in their clock alone.
    motions: Mapping[str, Sequence[_LinePair]]


def _lines(
    rows: Sequence[Row], x: Callable[[Row], float], time: Callable[[Row], Point | None], **look: Any
) -> _LinePair:
    ordered = sorted(rows, key=x)

    def line(y: Callable[[Row], Point | None]) -> ChartLine:
        points = [(x(row), *point) for row in ordered if (point := y(row)) is not None]
        return ChartLine(points=points, **look)

    return line(_success_of), line(time)


def _success_of(row: Row) -> Point | None:
    return _mean(row["pc_success"], row["pc_success_ci95"])


def _mean(mean: float | None, interval: Sequence[float] | None) -> Point | None:
    if mean is None:
        return None
    low, high = interval or (mean, mean)
    return mean, low, high


def _seconds_of(row: Row) -> Point | None:
    return _mean((row["time_to_success_s"] or {}).get("mean"), row["time_to_success_ci95"])


def over_latency(record: Record) -> LinePlot:
    """A line for every combination of options other than the clock that has several latencies.

    Lines of several motions that differ in nothing else have the same label and colour.
    """

    def latency_of(row: Row) -> float:
        return (row["charged_ms"] or {}).get("actions", 0.0)

    others = [axis for axis in record["varied"] if axis != "clock"]
    groups = group_by(record["cells"], others)
    groups = [group for group in groups if 1 < len(set(map(latency_of, group))) == len(group)]
    modes = dict.fromkeys(group[0]["options"]["mode"] for group in groups)
    labels = [format_cell(group[0]["options"], others, with_mode=len(modes) > 1) for group in groups]
    told_apart = len(modes) == len(set(labels)) > 1
    places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    motions: dict[str, list[_LinePair]] = {}
    for group, label in zip(groups, labels, strict=True):
        mode, place = group[0]["options"]["mode"], places[label]
        colour = COLOURS[mode] if told_apart else OTHER_COLOURS[place % len(OTHER_COLOURS)]
        lines = _lines(group, latency_of, _seconds_of, label=label or mode, colour=colour, place=place)
        motions.setdefault(format_value("motion", group[0]["options"]), []).append(lines)
    return LinePlot(
        x_label="latency until the actions (ms)", time_label="mean time to success (s)", motions=motions
    )


def over_interval(record: Record) -> LinePlot:
    """The response surface: a line over b for every a, which an episode without texts of its own depends on.

    Of cells in mode `actions`, without an option for texts in prompts, in which every query has the same a
    and b. They continue the previous chunk while waiting, and skip what is late of a new one.
    """
    rule = {"mode": "actions", "feedback": None, "while_waiting": "continue", "overlap": "skip"}
    found: dict[str, dict[float, list[Row]]] = {}
    for row in record["cells"]:
        steps = row.get("control_steps") or {}
        constant = len(steps) == 2 and all(each["least"] == each["most"] for each in steps.values())
        if constant and all(row["options"].get(axis) == value for axis, value in rule.items()):
            motion = format_value("motion", row["options"])
            found.setdefault(motion, {}).setdefault(steps["a"]["median"], []).append(row)
    motions: dict[str, list[_LinePair]] = {}
    for motion, by_a in found.items():
        for place, (a, rows) in enumerate(sorted(by_a.items())):
            lines = _lines(
                rows,
                lambda row: row["control_steps"]["b"]["median"],
                lambda row: _mean(row.get("restricted_mean_s"), row.get("restricted_mean_ci95")),
                label=f"a = {a:g}",
                colour=OTHER_COLOURS[place % len(OTHER_COLOURS)],
                place=place,
            )
            motions.setdefault(motion, []).append(lines)
    x_label = "b: control steps until the next query"
    return LinePlot(x_label=x_label, time_label="restricted mean time (s)", motions=motions)


def draw_sweep(record: Record, folder: Path) -> list[Path]:
    """Draw the figures that a finished sweep has cells for, as PNG files; returns their paths."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figures = {"surface": draw_surface([record]), "latency": _latency_figure(record)}
        written = {folder / f"sweep_{name}.png": figure for name, figure in figures.items() if figure}
        for path, figure in written.items():
            figure.savefig(path, bbox_inches="tight")
    return list(written)


def draw_surface(records: Sequence[Record]) -> "Figure | None":
    """Success above restricted mean time over b, a column for every condition and a line for every a.

    Of sweeps of one policy. None if no line has enough points.
    """
    plots = [over_interval(record) for record in records]
    panels = {
        f"{', '.join(record['config']['suites'])}, {motion}": lines
        for record, plot in zip(records, plots, strict=True)
        for motion, lines in plot.motions.items()
        if max(len(solved.points) for solved, _ in lines) >= _MIN_LATENCIES
    }
    if not panels:
        return None
    size = 2.2 + 3.2 * len(panels), 5.6
    figure = _line_panels(plots[0], panels, size, styles=_STYLES[:1])
    _legend(figure, title="control steps until actions arrive")
    _title(figure, "What acting depends on", records)
    return figure


def _latency_figure(record: Record) -> "Figure | None":
    """Success above time to success, a column for every motion; a line for every other combination."""
    plot = over_latency(record)
    points = [len(solved.points) for lines in plot.motions.values() for solved, _ in lines]
    if max(points, default=0) < _MIN_LATENCIES:
        return None
    panels = plot.motions if "motion" in record["varied"] else {"": next(iter(plot.motions.values()))}
    figure = _line_panels(plot, panels, (2.6 + 4.6 * len(panels), 6.4), styles=_STYLES)
    _legend(figure, ncols=1 + len(panels))
    _title(figure, "Success over latency", [record])
    return figure


def _line_panels(
    plot: LinePlot,
    panels: Mapping[str, Sequence[_LinePair]],
    size: tuple[float, float],
    *,
    styles: Sequence[str],
) -> "Figure":
    """A figure with a column of panels for each title: success above the time."""
    figure = new_figure(*size)
    axes = figure.subplots(2, len(panels), sharex=True, sharey="row", squeeze=False)
    look = {"marker": "o", "markersize": 5, "capsize": 2, "linewidth": 1.4}
    for column, (title, lines) in zip(axes.T, panels.items(), strict=True):
        widest = max((x for pair in lines for line in pair for x, *_ in line.points), default=0.0)
        for pair in lines:
            for panel, line in zip(column, pair, strict=False):
                x, y, low, high = np.array(line.points).reshape(-1, 4).T
                apart = _APART * widest * (line.place - (len(lines) - 1) / 2)
                bars = {"yerr": [y - low, high - y], "linestyle": styles[line.place % len(styles)]}
                panel.errorbar(x + apart, y, color=line.colour, label=line.label, **bars, **look)
        column[0].set_title(title)
        column[-1].set_xlabel(plot.x_label)
    axes[0][0].set(ylabel="episodes solved (%)", ylim=(-4, 102))
    axes[1][0].set(ylabel=plot.time_label)
    axes[1][0].set_ylim(bottom=0)
    return figure


def _legend(figure: "Figure", *, title: str | None = None, ncols: int | None = None) -> None:
    """A legend below the panels, with one entry for lines of the same label."""
    handles = {}
    for panel in figure.axes:
        handles |= {label: handle for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    place, columns = "outside lower center", ncols or len(handles)
    figure.legend(handles.values(), handles, title=title, loc=place, ncols=columns, frameon=False)


def _title(figure: "Figure", text: str, records: Sequence[Record]) -> None:
    policy = records[0]["provenance"]["policy"]
    episodes = " or ".join(map(str, sorted({episodes_of(record) for record in records})))
    figure.suptitle(
        badged(f"{text}\n{policy}, {episodes} episodes a cell, 95 % intervals", *map(assets_of, records)),
        x=0.01,
        ha="left",
        fontsize=12,
    )


def write_sweep_page(folder: SweepFolder, record: Record, page_folder: Path | None = None) -> Path:
    """Write the page of a finished sweep from its `sweep.json`, by default to `report` in its folder.

    Raises:
        UsageError: The folder cannot be written.
    """
    target = folder.path / REPORT if page_folder is None else page_folder
    cells, episodes = pluralize(len(record["cells"]), "cell"), pluralize(episodes_of(record), "episode")
    provenance = record["provenance"]
    weights = provenance.get("weights_sha256")
    what = f"{provenance['policy']} on {', '.join(record['config']['suites'])}"

    def link(row: Row) -> str | None:
        page = folder.path / row["run"] / REPORT / "index.html"
        return quote(Path(os.path.relpath(page, target)).as_posix()) if page.is_file() else None

    content = {
        "title": f"{badged(what, assets_of(record))}: {cells} of {episodes}",
        "facts": {
            "Policy": f"{provenance['policy']}{f', weights {weights[:12]}' if weights else ''}",
            "Assets": badged(assets_of(record), assets_of(record)),
            "Margins": format_margins(record),
            "Machine": format_machine(provenance.get("hardware") or {}),
            "Code": format_code(provenance),
            "Finished": str(record.get("finished") or "not recorded"),
            "Command": str(provenance["command"]),
        },
        "cells": Table(columns=columns_of(record, link), groups=[record["cells"]]),
        "has_texts": bool(text_columns(record)),
        "is_judged": is_judged(record),
        "plots": {"charts": _charts(record)},
    }
    return write_page(target, "sweep.html.j2", content)


def _charts(record: Record) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for plot in (over_latency(record), over_interval(record)):
        for motion, lines in plot.motions.items():
            solved, time = zip(*lines, strict=True)
            under = f", {motion}" if "motion" in record["varied"] else ""
            found += chart_group(
                f"over {plot.x_label}{under}",
                line_chart(solved, x=plot.x_label, y="episodes solved (%)", is_percent=True),
                line_chart(time, x=plot.x_label, y=plot.time_label),
            )
    return found
