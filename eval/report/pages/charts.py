"""The data of a report's plots: success over time, and distributions of latency and staleness."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.metrics.statistics import quantiles
from eval.metrics.time_to_success import CurvePoint, success_curve
from eval.report.pages.reported_runs import ReportedRun

_POINTS = 101
"""Points of a distribution: its percentiles."""

Samples = Mapping[str, Sequence[float]]
"""Quantity to its values in one run."""


def success_over_time(runs: Sequence[ReportedRun]) -> dict[str, Any] | None:
    """The curve of every run at common times; None if no run recorded its simulated time."""
    curves = [(run, success_curve(list(run.episodes.values()))) for run in runs]
    times = sorted({point.seconds for _, curve in curves for point in curve})
    if not times:
        return None
    return {
        "x_label": "simulated time (s)",
        "y_label": "solved (%)",
        "unit": "%",
        "most": 100,
        "x": times,
        "series": [
            {"label": run.label, "colour": run.colour, **_at(times, curve)} for run, curve in curves if curve
        ],
    }


def _at(times: Sequence[float], curve: Sequence[CurvePoint]) -> dict[str, list[float]]:
    """The step function at some times; constant after its last point."""
    places = np.searchsorted([point.seconds for point in curve], times, side="right") - 1
    return {
        "y": [round(curve[place].percent, 3) for place in places],
        "low": [round(curve[place].low, 3) for place in places],
        "high": [round(curve[place].high, 3) for place in places],
    }


def distributions(runs: Sequence[ReportedRun], samples: Sequence[Samples]) -> list[dict[str, Any]]:
    """Every quantity that a run has values of: its distribution and quantiles by run."""
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
