"""Style and colours shared by all figures."""

from typing import TYPE_CHECKING, Any

from videos.theme import MODE_COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
