"""The figures of a sweep: the surface over (a, b), success over latency, and success of each cell."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.sweep import CONDITIONS
from eval.report.figures import COLOURS, STYLE, new_figure
from eval.report.sweep_series import (
    Value,
    interval_of,
    latency_lines,
    latency_of,
    restricted_of,
    seconds_of,
    success_of,
    surface_lines,
)
from eval.report.sweep_table import Record, Row, episodes_of, format_cell, format_condition, group_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MIN_LATENCIES = 3
"""A sweep whose lines all have fewer points has no curve."""
_STYLES = ("-", "--", ":", "-.")
_APART = 0.006
"""Offset between lines, as a share of the largest latency, so that their intervals do not overlap."""
_MAX_CELLS = 60
"""Larger sweeps have no figure of cells."""
_MAX_BESIDE = 3
"""Clocks side by side; with more of them, every condition is a row of panels."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark:
    """A device in a mode: its a and b in control steps, each with prices that are lower, right and higher."""

    label: str
    a: Sequence[int]
    b: Sequence[int]


def draw_sweep(record: Record, folder: Path, *, stem: str = "sweep") -> list[Path]:
    """Draw the figures that a finished sweep has cells for, as PNG files; returns their paths."""
    import matplotlib as mpl

    figures: Mapping[str, Callable[[Record], Figure | None]] = {
        "surface": lambda record: draw_surface([record]),
        "latency": _latency_figure,
        "cells": _cells_figure,
    }
    written = []
    with mpl.rc_context(STYLE):
        for name, draw in figures.items():
            figure = draw(record)
            if figure is not None:
                written.append(folder / f"{stem}_{name}.png")
                figure.savefig(written[-1], bbox_inches="tight")
    return written


def draw_surface(records: Sequence[Record], marks: Sequence[Mark] = ()) -> "Figure | None":
    """Success above restricted mean time over b, a column for every condition and a line for every a.

    Args:
        records: Sweeps of one policy.
        marks: Drawn below the panels, each at its b and in the colour of its a.

    Returns:
        None if no line has enough points.
    """
    panels = [
        (f"{', '.join(record['config']['suites'])}, {motion}", lines)
        for record in records
        for motion, lines in surface_lines(record).items()
        if max(len(line.rows) for line in lines) >= _MIN_LATENCIES
    ]
    if not panels:
        return None
    strip = [0.28 * len(marks) + 0.3] if marks else []
    figure = new_figure(2.2 + 3.2 * len(panels), 5.6 + sum(strip))
    heights = [2.6, 2.6, *strip]
    axes = figure.subplots(
        len(heights), len(panels), sharex=True, sharey="row", squeeze=False, height_ratios=heights
    )
    for (above, below, *rest), (title, lines) in zip(axes.T, panels, strict=True):
        for line in lines:
            apart = _APART * 20 * (line.place - (len(lines) - 1) / 2)
            style = {"label": line.label, "color": line.colour}
            for panel, value in ((above, success_of), (below, restricted_of)):
                _line(panel, line.rows, value, x=lambda row, apart=apart: interval_of(row) + apart, **style)
        above.set_title(title)
        for panel in rest:
            _draw_marks(panel, marks, {line.label: line.colour for line in lines})
        (below, *rest)[-1].set_xlabel("b: control steps until the next query")
    axes[0][0].set_ylabel("episodes solved (%)")
    axes[0][0].set_ylim(-2, 102)
    axes[1][0].set_ylabel("restricted mean time (s)")
    axes[1][0].set_ylim(bottom=0)
    found = {
        label: handle
        for above in axes[0]
        for handle, label in zip(*above.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        [found[label] for label in sorted(found)],
        sorted(found),
        title="control steps until actions arrive",
        loc="outside lower center",
        ncols=len(found),
        frameon=False,
    )
    _title(figure, "What acting depends on", records)
    return figure


def _draw_marks(panel: "Axes", marks: Sequence[Mark], colours: Mapping[str, str]) -> None:
    for place, mark in enumerate(marks):
        colour = colours.get(f"a = {mark.a[1]}", "#333333")
        panel.plot([mark.b[0], mark.b[2]], [place, place], color=colour, linewidth=5, alpha=0.35)
        panel.plot(mark.b[1], place, "D", color=colour, markersize=5)
    panel.set_yticks(range(len(marks)), [f"{mark.label}: a = {mark.a[1]}" for mark in marks], fontsize=9)
    panel.set_ylim(len(marks) - 0.5, -0.5)
    panel.grid(axis="x", color="#e4e4e4", linewidth=0.8)


def _latency_figure(record: Record) -> "Figure | None":
    """Success above time to success, a column for every motion; a line for every other combination."""
    motions = latency_lines(record)
    if max((len(line.rows) for lines in motions.values() for line in lines), default=0) < _MIN_LATENCIES:
        return None
    figure = new_figure(2.6 + 4.6 * len(motions), 6.4)
    panels = figure.subplots(2, len(motions), sharex=True, sharey="row", squeeze=False)
    for (above, below), (motion, lines) in zip(panels.T, motions.items(), strict=True):
        for line in lines:
            dashes = _STYLES[line.place % len(_STYLES)]
            style = {"label": line.label, "color": line.colour, "linestyle": dashes}
            apart = _APART * (line.place - (len(lines) - 1) / 2) * max(map(latency_of, line.rows))
            for panel, value in ((above, success_of), (below, seconds_of)):
                _line(panel, line.rows, value, x=lambda row, apart=apart: latency_of(row) + apart, **style)
        above.set_title(motion if "motion" in record["varied"] else "")
        below.set_xlabel("latency until the actions (ms)")
    panels[0][0].set_ylabel("episodes solved (%)")
    panels[0][0].set_ylim(-4, 102)
    panels[1][0].set_ylabel("mean time to success (s)")
    panels[1][0].set_ylim(bottom=0)
    found = [zip(*above.get_legend_handles_labels(), strict=True) for above in panels[0]]
    handles = {label: handle for each in found for handle, label in each}
    columns = 1 + len(motions)
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, frameon=False)
    _title(figure, "Success over latency", [record])
    return figure


def _cells_figure(record: Record) -> "Figure | None":
    """A pair of panels for every condition, clocks side by side; a row for every cell."""
    if "mode" not in record["varied"] or len(record["cells"]) > _MAX_CELLS:
        return None
    clocks = [rows[0]["options"]["clock"] for rows in group_by(record["cells"], ["clock"])]
    if len(clocks) <= _MAX_BESIDE:
        beside, down = clocks, [axis for axis in CONDITIONS if axis != "clock"]
    else:
        beside, down = [None], list(CONDITIONS)
    rows = group_by(record["cells"], down)
    labels = [list(dict.fromkeys(_format_row(row, record) for row in cells)) for cells in rows]
    heights = [0.3 * len(names) + 0.7 for names in labels]
    figure = new_figure(2.6 + 3.3 * (1 + len(beside)), sum(heights) + 0.9)
    axes = figure.subplots(
        len(rows), 2 * len(beside), squeeze=False, sharex="col", sharey="row", height_ratios=heights
    )
    for panels, cells, names in zip(axes, rows, labels, strict=True):
        for clock, left, right in zip(beside, panels[::2], panels[1::2], strict=True):
            shown = [row for row in cells if clock in (None, row["options"]["clock"])]
            _cell_rows(left, right, {names.index(_format_row(row, record)): row for row in shown})
            if shown:
                left.set_title(format_condition(shown[0]["options"], record["varied"]))
        panels[0].set_yticks(range(len(names)), names)
        panels[0].set_ylim(len(names) - 0.5, -0.5)
    longest = max((each[2] for row in record["cells"] if (each := seconds_of(row))), default=1.0)
    for left, right in zip(axes[-1][::2], axes[-1][1::2], strict=True):
        left.set_xlim(-2, 108)  # apart from the first number of the next panel
        right.set_xlim(0, 1.05 * longest)
        left.set_xlabel("episodes solved (%)")
        right.set_xlabel("mean time to success (s)")
    _title(figure, "Success and time to success", [record])
    return figure


def _cell_rows(left: "Axes", right: "Axes", rows: Mapping[int, Row]) -> None:
    for panel in (left, right):
        panel.grid(axis="x", color="#e4e4e4", linewidth=0.8)
        panel.set_axisbelow(True)
    for place, row in rows.items():
        style = {"color": COLOURS[row["options"]["mode"]], "fmt": "o", "capsize": 2}
        for panel, value in ((left, success_of(row)), (right, seconds_of(row))):
            if value is not None:
                middle, low, high = value
                panel.errorbar(middle, place, xerr=[[middle - low], [high - middle]], **style)


def _format_row(row: Row, record: Record) -> str:
    return format_cell(row["options"], record["varied"])


def _line(
    panel: "Axes",
    rows: Sequence[Row],
    value: Value,
    *,
    x: Callable[[Row], float],
    **style: Any,
) -> None:
    """The values of some rows with their intervals."""
    found = [(x(row), *measured) for row in rows if (measured := value(row)) is not None]
    if not found:
        return
    at, middle, low, high = zip(*found, strict=True)
    below = [m - each for m, each in zip(middle, low, strict=True)]
    above = [each - m for m, each in zip(middle, high, strict=True)]
    panel.errorbar(
        at, middle, yerr=[below, above], marker="o", markersize=5, capsize=2, linewidth=1.4, **style
    )


def _title(figure: "Figure", text: str, records: Sequence[Record]) -> None:
    policy = records[0]["provenance"]["policy"]
    episodes = " or ".join(map(str, sorted({episodes_of(record) for record in records})))
    figure.suptitle(
        f"{text}\n{policy}, {episodes} episodes a cell, 95 % intervals",
        x=0.01,
        ha="left",
        fontsize=12,
    )
