"""The data of plots: success over time, distributions of latency and staleness, and lines with intervals."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.metrics.simulated_time import success_curve
from eval.metrics.statistics import quantiles
from eval.report.pages.reported_runs import ReportedRun

_POINTS = 101  # points of a distribution: its percentiles

Samples = Mapping[str, Sequence[float]]
"""Quantity to its values in one run."""


def success_over_time(runs: Sequence[ReportedRun]) -> dict[str, Any] | None:
    """The curve of every run at common times; None if no run recorded its simulated time."""
    curves = [(run, success_curve(list(run.episodes.values()))) for run in runs]
    times = sorted({point.seconds for _, curve in curves for point in curve})
    if not times:
        return None
    series = []
    for run, curve in ((run, curve) for run, curve in curves if curve):  # constant after its last point
        places = np.searchsorted([point.seconds for point in curve], times, side="right") - 1
        fields = (("y", "percent"), ("low", "low"), ("high", "high"))
        values = {name: [round(getattr(curve[at], field), 3) for at in places] for name, field in fields}
        series.append({"label": run.label, "colour": run.colour, **values})
    return {
        "x_label": "simulated time (s)",
        "y_label": "solved (%)",
        "unit": "%",
        "most": 100,
        "x": times,
        "series": series,
    }


def distributions(runs: Sequence[ReportedRun], samples: Sequence[Samples]) -> list[dict[str, Any]]:
    """The distribution and quantiles of each quantity, by run."""
    names = dict.fromkeys(name for of_run in samples for name in of_run)
    return [
        {
            "name": name,
            "series": [
                {
                    "label": run.label,
                    "colour": run.colour,
                    "n": len(of_run[name]),
                    "x": np.quantile(of_run[name], np.linspace(0, 1, _POINTS)).round(4).tolist(),
                    **quantiles(of_run[name]),
                }
                for run, of_run in zip(runs, samples, strict=True)
                if of_run.get(name)
            ],
        }
        for name in names
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChartLine:
    """Points in the order of x, joined by a line: x, y and the bounds of an interval of y.

    `place` is that of its label among those of a figure, which draws lines apart.
    """

    label: str
    colour: str
    points: Sequence[tuple[float, float, float, float]]
    place: int = 0


def line_chart(
    lines: Sequence[ChartLine], *, x: str, y: str, is_percent: bool = False
) -> dict[str, Any] | None:
    """The data of a chart with intervals; None if it has no point.

    Args:
        lines: Its lines; those without points are left out.
        x: What the x axis shows, with its unit.
        y: What the y axis shows, with its unit.
        is_percent: Whether the y axis ends at 100.
    """
    shown = [line for line in lines if line.points]
    if not shown:
        return None
    highest = max(high for line in shown for *_, high in line.points)
    series = []
    for line in shown:
        xs, *ys = zip(*line.points, strict=True)
        places: list[float] = []
        for x_value in xs:  # equal ones are moved apart imperceptibly: uPlot shows one value at each
            far = not places or x_value > places[-1]
            places.append(x_value if far else places[-1] + 1e-6 * (1 + abs(x_value)))
        values = {name: list(each) for name, each in zip(("y", "low", "high"), ys, strict=True)}
        series.append({"label": line.label, "colour": line.colour, "x": places, **values})
    return {
        "x": x,
        "y": y,
        "range": [-2, 102] if is_percent else [0, 1.1 * highest or 1],
        "series": series,
    }


def chart_group(title: str, *charts: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Charts under a common title, without empty ones; no group if all are empty."""
    kept = [chart for chart in charts if chart is not None]
    return [{"title": title, "charts": kept}] if kept else []
