"""Style and colours of all figures, and the plot of episodes solved over simulated time."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.assets import badged
from contracts.errors import UsageError, pluralize
from videos.theme import MODE_COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    "figure.facecolor": "white",
    "savefig.dpi": 150,
    "svg.hashsalt": "oxygen-eval",  # so that the same figure is the same file
}


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


def draw_success_curves(comparison: "Comparison", path: Path) -> None:
    """Draw the curve of either run with its pointwise 95 % band.

    Raises:
        UsageError: The runs did not record simulated time.
    """
    if not comparison.curve_a or not comparison.curve_b:
        raise UsageError("these runs did not record simulated seconds; leave out --plot, or run them again")
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = new_figure(7.2, 4.4)
        panel, curves = figure.subplots(), (comparison.curve_a, comparison.curve_b)
        colours = colours_of(comparison.names)
        end = max(curve[-1].seconds for curve in curves)
        for curve, name, colour in zip(curves, comparison.names, colours, strict=True):
            points = [*curve, dataclasses.replace(curve[-1], seconds=end)]
            seconds, percent = [point.seconds for point in points], [point.percent for point in points]
            low, high = [point.low for point in points], [point.high for point in points]
            panel.fill_between(seconds, low, high, step="post", color=colour, alpha=0.15, linewidth=0)
            panel.step(seconds, percent, where="post", color=colour, linewidth=1.8, label=name)
        panel.set_xlabel("simulated time (s)")
        panel.set_ylabel("episodes solved (%), with pointwise 95 % band")
        panel.set_xlim(0, end)
        panel.set_ylim(0, 101)
        panel.legend(frameon=False, loc="upper left")
        episodes = pluralize(comparison.overall.graded, "episode")
        title = f"Success over time, {episodes}, clock {comparison.a.clock}"
        panel.set_title(badged(title, comparison.a.assets.name), loc="left")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
