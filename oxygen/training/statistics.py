"""Normalisation statistics of demonstrations, measured and written as openpi's `norm_stats.json`."""

import json
from pathlib import Path

import numpy as np

from oxygen.robots.norms import Statistics
from oxygen.training.samples import Mixture
from oxygen.typing import Float

_MAX_TAIL = 4.0
"""Channels whose full range exceeds this multiple of the quantile range are scaled by the full range."""


def measure(mixture: Mixture) -> Statistics:
    """Mean, standard deviation, 1 % and 99 % quantiles of states and valid actions.

    Two exceptions for channels that rarely move: a channel at rest in nearly all frames gets its full range
    instead of the quantiles, and a constant channel gets a range of 2 around its value.
    """
    actions = mixture.actions[mixture.valid]
    return {"state": _moments(mixture.state), "actions": _moments(actions)}


def write_statistics(path: Path, measured: Statistics) -> None:
    """Write a `norm_stats.json`, as read by `oxygen.robots.norms.read_norms`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"norm_stats": measured}, indent=2) + "\n", encoding="utf-8")


def _moments(numbers: Float[np.ndarray, "row channel"]) -> dict[str, list[float]]:
    wide = np.asarray(numbers, np.float64)
    low, high = np.quantile(wide, (0.01, 0.99), axis=0)
    least, most = wide.min(axis=0), wide.max(axis=0)
    rarely_moves = most - least > _MAX_TAIL * (high - low)
    low, high = np.where(rarely_moves, least, low), np.where(rarely_moves, most, high)
    constant = low == high
    low, high = np.where(constant, low - 1.0, low), np.where(constant, high + 1.0, high)
    found = {"mean": wide.mean(axis=0), "std": wide.std(axis=0), "q01": low, "q99": high}
    return {name: [float(value) for value in values] for name, values in found.items()}
