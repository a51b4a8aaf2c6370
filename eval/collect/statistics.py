"""Statistics of a dataset's columns under LeRobot's names, per episode and over all of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64, UInt8

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}

Histogram = Int64[np.ndarray, "channel 256"]
Statistics = dict[str, Any]
"""Statistic to a (nested) list of numbers."""


def of_numbers(values: Float64[np.ndarray, "row channel"], *, count: int) -> Statistics:
    """Statistics of each channel over the rows; `count` is the number of frames."""
    found = {
        "min": values.min(axis=0),
        "max": values.max(axis=0),
        "mean": values.mean(axis=0),
        "std": values.std(axis=0),
        **{name: np.quantile(values, share, axis=0) for name, share in QUANTILES.items()},
    }
    return {**{name: value.tolist() for name, value in found.items()}, "count": [count]}


def of_images(histogram: Histogram, *, count: int) -> Statistics:
    """Statistics of each channel, as [channel, 1, 1] in units of full brightness."""
    weights = histogram / histogram.sum(axis=1, keepdims=True)
    levels = np.arange(256) / 255
    mean = weights @ levels
    variance = np.maximum(weights @ levels**2 - mean**2, 0)
    below = weights.cumsum(axis=1)
    found = {
        "min": levels[(histogram > 0).argmax(axis=1)],
        "max": levels[255 - (histogram[:, ::-1] > 0).argmax(axis=1)],
        "mean": mean,
        "std": np.sqrt(variance),
        # Rounding may leave the last sum just below 1.
        **{name: levels[(below >= share - 1e-12).argmax(axis=1)] for name, share in QUANTILES.items()},
    }
    return {**{name: value[:, None, None].tolist() for name, value in found.items()}, "count": [count]}


def histogram(images: UInt8[np.ndarray, "frame height width 3"]) -> Histogram:
    """Counts of the 256 levels in each channel."""
    return np.stack([np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(3)])


def flattened(statistics: Mapping[str, Statistics]) -> dict[str, Any]:
    """As columns of the episodes' table: `stats/<feature>/<statistic>`."""
    return {
        f"stats/{feature}/{name}": value
        for feature, found in statistics.items()
        for name, value in found.items()
    }
