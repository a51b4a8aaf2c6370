"""Figures of a benchmark's rows: speed-up over `isolated`, and actions against tokens per second."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eval.bench.row import Row
from eval.bench.table import by_label
from eval.report.figures import COLOURS, STYLE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Draw the figures as PNG and SVG to paths that begin with `stem`; returns the paths.

    Without `isolated` among the modes there is no speed-up figure.
    """
    import matplotlib as mpl

    written = []
    with mpl.rc_context(STYLE):
        workloads = [list(group) for _, group in itertools.groupby(rows, key=lambda row: row.title)]
        faster = [group for group in workloads if any(row.speedup_over_isolated for row in group)]
        figures = {"speedup": _speedup(faster)} if faster else {}
        for name, figure in {**figures, "tradeoff": _tradeoff(rows)}.items():
            for suffix, metadata in ((".png", {}), (".svg", {"Date": None})):
                path = stem.with_name(f"{stem.name}_{name}{suffix}")
                figure.savefig(path, metadata=metadata, bbox_inches="tight")
                written.append(path)
    return written


def _speedup(workloads: Sequence[Sequence[Row]]) -> "Figure":
    """A panel per workload, a bar with its interval per configuration, and a mark for the prediction."""
    panel_rows = [[row for row in group if row.mode != "actions"] for group in workloads]
    heights = [0.42 * len(group) + 0.75 for group in panel_rows]
    figure = new_figure(8.4, sum(heights) + 0.9)
    panels = figure.subplots(len(panel_rows), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for panel, group in zip(panels, panel_rows, strict=True):
        _bars(panel, group)
    panels[-1].set_xlabel("times faster than isolated, mean frame")
    _title(figure, workloads[0][0], "Speed-up of a frame; black mark: predicted from stage times")
    return figure


def _bars(panel: "Axes", rows: Sequence[Row]) -> None:
    panel.set_title(rows[0].work)
    panel.axvline(1.0, color="#999999", linewidth=0.8, zorder=0)
    longest = 1.0
    for place, row in enumerate(rows):
        value = row.speedup_over_isolated or math.nan
        low, high = row.speedup_ci95 or (value, value)
        panel.barh(place, value, height=0.62, color=COLOURS[row.mode])
        panel.plot([low, high], [place, place], color="#222222", linewidth=1.2)
        if row.predicted_speedup is not None and row.mode != "isolated":
            panel.plot(
                [row.predicted_speedup] * 2, [place - 0.36, place + 0.36], color="black", linewidth=2.4
            )
        end = max(value, high, row.predicted_speedup or 0.0)
        longest = max(longest, end)
        panel.annotate(f"{value:.2f}×", (end, place), xytext=(7, 0), textcoords="offset points", va="center")
    panel.set_yticks(range(len(rows)), [row.label for row in rows])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlim(0, 1.14 * longest)
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)


def _tradeoff(rows: Sequence[Row]) -> "Figure":
    """Actions per second against tokens per second; a line joins the workloads of a configuration.

    Within one workload each query requests the same texts, so its points lie on a ray from the origin.
    """
    figure = new_figure(8.4, 5.2)
    panel = figure.subplots()
    curves = list(by_label(rows).values())
    for curve in curves:
        xs, ys = [row.tokens_per_s for row in curve], [row.actions_per_s for row in curve]
        panel.plot(xs, ys, "o-", color=COLOURS[curve[0].mode], markersize=7, linewidth=1.2)
    panel.set_xlim(0, 1.06 * max(1.0, *(row.tokens_per_s for row in rows)))
    panel.set_ylim(0, 1.08 * max(row.actions_per_s for row in rows))
    panel.set_xlabel("tokens per second")
    panel.set_ylabel("actions per second (horizon × chunks)")
    _name_curves(panel, curves)
    _title(figure, rows[0], "Actions against tokens: up and to the right is better")
    return figure


def _name_curves(panel: "Axes", curves: Sequence[Sequence[Row]]) -> None:
    """Labels at the right margin without overlap, each with a line to its curve's last point."""
    low, high = panel.get_ylim()
    right = panel.get_xlim()[1]
    gap, place = (high - low) / 17, math.inf
    for curve in sorted(curves, key=lambda curve: -curve[-1].actions_per_s):
        last = curve[-1]
        place = min(last.actions_per_s, place - gap)
        panel.annotate(
            last.label,
            (last.tokens_per_s, last.actions_per_s),
            xytext=(1.03 * right, place),
            va="center",
            color=COLOURS[last.mode],
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": COLOURS[last.mode], "linewidth": 0.6, "alpha": 0.5},
        )


def _title(figure: "Figure", row: Row, text: str) -> None:
    machine = row.hardware["processor"] if row.device == "cpu" else row.device
    figure.suptitle(f"{text}\n{row.policy}, {row.dtype}, {machine}", x=0.01, ha="left", fontsize=12)
