"""Normalisation statistics of demonstrations, measured and written as openpi's `norm_stats.json`."""

import dataclasses
import json
from pathlib import Path
from typing import TypeAlias

import numpy as np

from oxygen.robots.norms import QuantileNorm, RobotNorms, ZScoreNorm, checkpoint_norms, read_norms
from oxygen.robots.transforms import Embodiment
from oxygen.training.samples import Mixture
from oxygen.typing import Float, Float64

Statistics: TypeAlias = dict[str, dict[str, list[float]]]
"""`state` and `actions` to `mean`, `std`, `q01` and `q99`, each with one number per channel."""

_MAX_TAIL = 4.0
"""Channels whose full range exceeds this multiple of the quantile range are scaled by the full range."""


def measure(mixture: Mixture) -> Statistics:
    """Mean, standard deviation, 1 % and 99 % quantiles of states and valid actions.

    Two exceptions for channels that rarely move: a channel at rest in nearly all frames gets its full range
    instead of the quantiles, and a constant channel gets a range of 2 around its value.
    """
    actions = mixture.actions[mixture.valid]
    return {"state": _moments(mixture.state), "actions": _moments(actions)}


def read_statistics(source: Path, robot: Embodiment) -> Statistics:
    """Read a robot's statistics from a checkpoint or a `norm_stats.json`.

    Raises:
        UsageError: There are none for this robot, or they are damaged.
    """
    file = checkpoint_norms(source, robot.asset_id)
    state, actions = robot.interface.observation.state_size, robot.interface.action.size
    scores = read_norms(file, state=state, actions=actions, kind=ZScoreNorm)
    quantiles = read_norms(file, state=state, actions=actions, kind=QuantileNorm)
    return {name: _of(getattr(scores, name)) | _of(getattr(quantiles, name)) for name in ("state", "actions")}


def _of(norm: QuantileNorm | ZScoreNorm) -> dict[str, list[float]]:
    return {moment: list(values) for moment, values in dataclasses.asdict(norm).items()}


def norms_of(measured: Statistics) -> RobotNorms:
    """The quantile normalisation that the policy uses."""
    state, actions = (
        QuantileNorm(q01=tuple(measured[name]["q01"]), q99=tuple(measured[name]["q99"]))
        for name in ("state", "actions")
    )
    return RobotNorms(state=state, actions=actions)


def write_statistics(path: Path, measured: Statistics) -> None:
    """Write a `norm_stats.json`, as read by `oxygen.robots.norms.read_norms`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"norm_stats": measured}, indent=2) + "\n", encoding="utf-8")


def _moments(numbers: Float[np.ndarray, "row channel"]) -> dict[str, list[float]]:
    wide = np.asarray(numbers, np.float64)
    low, high = _range(wide)
    found = {"mean": wide.mean(axis=0), "std": wide.std(axis=0), "q01": low, "q99": high}
    return {name: [float(value) for value in values] for name, values in found.items()}


def _range(
    numbers: Float64[np.ndarray, "row channel"],
) -> tuple[Float64[np.ndarray, " channel"], Float64[np.ndarray, " channel"]]:
    low, high = np.quantile(numbers, (0.01, 0.99), axis=0)
    least, most = numbers.min(axis=0), numbers.max(axis=0)
    rarely_moves = most - least > _MAX_TAIL * (high - low)
    low, high = np.where(rarely_moves, least, low), np.where(rarely_moves, most, high)
    constant = low == high
    return np.where(constant, low - 1.0, low), np.where(constant, high + 1.0, high)
