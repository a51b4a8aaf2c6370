"""Charts: what they show, and how documents draw them. Pages draw the same charts with uPlot."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from configs.assets import badged
from contracts.errors import UsageError, pluralize
from videos.theme import MODE_COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from eval.metrics.statistics import Rate
    from eval.report.comparison import Comparison

COLOURS = {mode: "#{:02x}{:02x}{:02x}".format(*rgb) for mode, rgb in MODE_COLOURS.items()}
OTHER_COLOURS = ("#d55e00", "#0080c8", "#009e73", "#cc79a7", "#7a8292", "#a07600")
"""Colours of runs that modes do not distinguish."""

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.dpi": 150,
    "svg.hashsalt": "oxygen-eval",  # so that the same figure is the same file
}
_APART = 0.006
"""Offset between lines, as a share of the largest x, so that their intervals do not overlap."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """Points in the order of x: x, y and the bounds of an interval of y."""

    label: str
    colour: str
    points: Sequence[tuple[float, float, float, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over common axes."""

    x: str  # what x is, with its unit
    y: str
    lines: Sequence[Line]
    # Intervals are bars at each point, bands, or not shown; curves are steps with bands.
    look: Literal["bars", "band", "steps", "plain"] = "bars"
    is_percent: bool = False  # whether the y axis ends at 100


def colours_of(labels: Sequence[str]) -> list[str]:
    """A colour for each run: that of its mode if modes are the runs' labels."""
    return [
        COLOURS[label] if set(labels) <= COLOURS.keys() else OTHER_COLOURS[number % len(OTHER_COLOURS)]
        for number, label in enumerate(labels)
    ]


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(path: Path, draw: Callable[[], "Figure | None"]) -> bool:
    """Draw a figure in the common style and write it; returns whether there is one."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = draw()
        if figure is None:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, metadata=metadata, bbox_inches="tight")
    return True


def draw_charts(
    columns: Mapping[str, Sequence[Chart]],
    size: tuple[float, float],
    *,
    title: str,
    legend: str | None = None,
    dashed: bool = False,
) -> "Figure":
    """Charts in columns by title, with axes that a row shares, over a legend with an entry for each label."""
    figure, rows = new_figure(*size), max(map(len, columns.values()))
    axes = figure.subplots(rows, len(columns), sharex=True, sharey="row", squeeze=False)
    charts = [chart for column in columns.values() for chart in column]
    places = {label: n for n, label in enumerate(dict.fromkeys(e.label for c in charts for e in c.lines))}
    handles = {}
    for panels, (heading, column) in zip(axes.T, columns.items(), strict=True):
        for panel, chart in zip(panels, column, strict=True):
            widest = max((x for line in chart.lines for x, *_ in line.points), default=0.0)
            for line in chart.lines:
                place = places[line.label]
                apart = _APART * widest * (place - (len(places) - 1) / 2)
                handles[line.label] = draw_line(
                    panel, line, chart.look, apart=apart, dashes=("-", "--", ":", "-.")[dashed and place % 4]
                )
        panels[0].set_title(heading)
        panels[-1].set_xlabel(column[-1].x)
    for panel, chart in zip(axes[:, 0], next(iter(columns.values())), strict=True):
        panel.set_ylabel(chart.y)
        panel.set_ylim(*((-4, 102) if chart.is_percent else (0, None)))
    below: Any = {"loc": "outside lower center", "ncols": len(handles) if legend else 1 + len(columns)}
    figure.legend(handles.values(), handles, title=legend, **below)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def draw_line(panel: Any, line: Line, look: str = "bars", *, apart: float = 0.0, dashes: str = "-") -> Any:
    """Draw a line with its intervals; returns what stands for it in a legend."""
    x, y, low, high = np.array(line.points).reshape(-1, 4).T
    if look == "bars":
        marks: Any = {"marker": "o", "markersize": 5, "capsize": 2, "linewidth": 1.4, "linestyle": dashes}
        marks |= {"color": line.colour, "label": line.label}
        return panel.errorbar(x + apart, y, yerr=[y - low, high - y], **marks)
    step = "post" if look == "steps" else None
    panel.fill_between(x, low, high, step=step, color=line.colour, alpha=0.15, linewidth=0)
    how: Any = {"linewidth": 1.8, "drawstyle": "steps-post" if step else "default", "label": line.label}
    return panel.plot(x, y, color=line.colour, **how)[0]


def success_curve_chart(curves: Mapping[tuple[str, str], Sequence[tuple[float, "Rate"]]]) -> Chart | None:
    """The share of episodes solved by each simulated time, by label and colour; None if none is recorded."""
    times = sorted({seconds for curve in curves.values() for seconds, _ in curve})
    lines = []
    for (label, colour), curve in curves.items():
        if curve:  # constant after its last point
            at = np.searchsorted([seconds for seconds, _ in curve], times, side="right") - 1
            rates = [curve[place][1] for place in at]
            points = [(s, rate.percent, rate.low, rate.high) for s, rate in zip(times, rates, strict=True)]
            lines.append(Line(label=label, colour=colour, points=points))
    what: Any = {"x": "simulated time (s)", "y": "episodes solved (%)", "look": "steps", "is_percent": True}
    return Chart(lines=lines, **what) if lines else None


def draw_success_curves(comparison: "Comparison", path: Path) -> None:
    """Draw the curve of either run with its pointwise 95 % band.

    Raises:
        UsageError: The runs did not record simulated time.
    """
    curves = comparison.curve_a, comparison.curve_b
    if not all(curves):
        raise UsageError("these runs did not record simulated seconds; leave out --plot, or run them again")
    names = comparison.names
    chart = success_curve_chart(dict(zip(zip(names, colours_of(names), strict=True), curves, strict=True)))
    assert chart is not None, "both have a point"
    episodes = pluralize(comparison.overall.graded, "episode")
    title = f"Success over time, {episodes}, clock {comparison.a.clock}, pointwise 95 % bands"
    title = badged(title, comparison.a.assets.name)
    save_figure(path, lambda: draw_charts({"": [chart]}, (7.2, 4.8), title=title))
