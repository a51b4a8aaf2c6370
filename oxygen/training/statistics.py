"""The range of a robot's numbers, measured over demonstrations: openpi's `norm_stats.json`, written."""

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
"""`state` and `actions` to their moments, `mean std q01 q99`, each a number per channel."""

_OUTLIER = 4.0
"""Where the whole range is more than so many times that between the quantiles, it is taken instead."""


def measure(mixture: Mixture) -> Statistics:
    """Mean, deviation and 1 % and 99 % quantiles of states and of actions within the episodes.

    Two departures from plain quantiles, both of channels that rarely move: one that lies still in nearly all
    frames gets its whole range, since its few movements would be far outside; one that never moves gets a
    range of 2 about its value.
    """
    actions = mixture.actions[mixture.valid]
    return {"state": _moments(mixture.state), "actions": _moments(actions)}


def kept_statistics(source: Path, robot: Embodiment) -> Statistics:
    """The statistics of a robot that lie in a checkpoint, or in a file of their own.

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
    """The statistics as the policy uses them."""
    state, actions = (
        QuantileNorm(q01=tuple(measured[name]["q01"]), q99=tuple(measured[name]["q99"]))
        for name in ("state", "actions")
    )
    return RobotNorms(state=state, actions=actions)


def write_statistics(path: Path, measured: Statistics) -> None:
    """Write them as openpi does, for `oxygen.robots.norms.read_norms`."""
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
    rare = most - least > _OUTLIER * (high - low)
    low, high = np.where(rare, least, low), np.where(rare, most, high)
    still = low == high
    return np.where(still, low - 1.0, low), np.where(still, high + 1.0, high)
