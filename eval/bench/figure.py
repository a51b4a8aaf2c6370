"""The figure of a benchmark's rows: the speed-up over `isolated`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.bench.row import Row
from eval.bench.table import by_workload
from eval.report.figures import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Draw the speed-ups as PNG and SVG to paths that begin with `stem`; returns the paths.

    None without `isolated` among the modes.
    """
    faster = [group for group in by_workload(rows) if any(row.speedup_over_isolated for row in group)]
    paths = [stem.with_name(f"{stem.name}_speedup{suffix}") for suffix in (".png", ".svg") if faster]
    return [path for path in paths if save_figure(path, lambda: _speedup_figure(faster))]


def _speedup_figure(workloads: Sequence[Sequence[Row]]) -> "Figure":
    """A panel per workload."""
    panel_rows = [[row for row in group if row.mode != "actions"] for group in workloads]
    heights = [0.42 * len(group) + 0.75 for group in panel_rows]
    figure = new_figure(8.4, sum(heights) + 0.9)
    panels = figure.subplots(len(panel_rows), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for panel, rows in zip(panels, panel_rows, strict=True):
        _draw_workload(panel, rows)
    panels[-1].set_xlabel("times faster than isolated, mean frame")
    row = workloads[0][0]
    machine = row.hardware["processor"] if row.device == "cpu" else row.device
    title = "Speed-up of a frame; black mark: predicted from stage times"
    figure.suptitle(f"{title}\n{row.policy}, {row.dtype}, {machine}", x=0.01, ha="left", fontsize=12)
    return figure


def _draw_workload(panel: Any, rows: Sequence[Row]) -> None:
    """A bar with its interval per configuration, and a mark for the prediction."""
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
