"""Normalisation of states and actions, and openpi's `norm_stats.json`."""

import dataclasses
import json
import reprlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from configs.paths import regular
from contracts.errors import UsageError, unknown
from oxygen.typing import Float, Float64

FILE_NAME = "norm_stats.json"
QUANTILES = ("q01", "q99")
MEASURED = ("mean", "std", *QUANTILES)
_EPSILON = 1e-6  # added to every range, as in openpi, against division by zero


Statistics: TypeAlias = dict[str, dict[str, list[float]]]
"""`state` and `actions` to `mean`, `std`, `q01` and `q99`, each with one number per channel."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileNorm:
    """Maps the range between two quantiles to [-1, 1], channel by channel, as π0.5 does."""

    q01: tuple[float, ...]  # 1 % quantile of every channel, in the robot's units
    q99: tuple[float, ...]  # 99 % quantile; nowhere below `q01`

    def __post_init__(self) -> None:
        low, high = np.array(self.q01, np.float64), np.array(self.q99, np.float64)
        if low.shape != high.shape or not np.isfinite([low, high]).all():
            listed = f"q01 {reprlib.repr(self.q01)} and q99 {reprlib.repr(self.q99)}"
            raise UsageError(f"quantiles {listed} must have the same number of channels, all finite")
        with np.errstate(over="ignore"):
            width = high - low
        if not (np.isfinite(width) & (width >= 0)).all():
            worst = int(np.argmin(np.isfinite(width) & (width >= 0)))
            raise UsageError(
                f"quantiles q01 {low[worst]} and q99 {high[worst]} (channel {worst}) are not a range"
            )

    @classmethod
    def of(cls, channels: Mapping[str, Sequence[float]]) -> "QuantileNorm":
        """The normalisation by the quantiles among some statistics."""
        return cls(q01=tuple(channels["q01"]), q99=tuple(channels["q99"]))

    @property
    def size(self) -> int:
        """Channels."""
        return len(self.q01)

    def normalise(self, x: Float[np.ndarray, "*batch channel"]) -> Float64[np.ndarray, "*batch channel"]:
        """From the robot's units to the model's; infinite on overflow."""
        low, width = self._range()
        with np.errstate(over="ignore"):
            return (np.asarray(x, np.float64) - low) / width * 2.0 - 1.0

    def restore(self, x: Float[np.ndarray, "*batch channel"]) -> Float64[np.ndarray, "*batch channel"]:
        """From the model's units to the robot's."""
        low, width = self._range()
        return (np.asarray(x, np.float64) + 1.0) / 2.0 * width + low

    def _range(self) -> tuple[np.ndarray, np.ndarray]:
        low = np.array(self.q01)
        return low, np.array(self.q99) - low + _EPSILON


def checkpoint_norms(checkpoint: Path, asset_id: str) -> Path:
    """Find a robot's statistics, such as those of `physical-intelligence/libero`, in a checkpoint.

    That is openpi's folder, with `assets` beside `params`; or its `params`; or a file in their place; or a
    folder with the statistics; or their JSON file. Refuses one without, and names those it has.
    """
    if checkpoint.suffix == ".json":
        return regular(checkpoint)
    if checkpoint.name == "params" or checkpoint.is_file():
        checkpoint = checkpoint.parent
    for path in (checkpoint / "assets" / asset_id / FILE_NAME, checkpoint / FILE_NAME):
        if path.is_file():
            return path
    there = [str(path.parent.relative_to(checkpoint)) for path in sorted(checkpoint.rglob(FILE_NAME))]
    raise unknown(
        f"norm statistics in {checkpoint}",
        f"assets/{asset_id}",
        there,
        remedy=f"A trained policy needs its {FILE_NAME}; `norm_stats` in its YAML can name one.",
    )


def read_statistics(path: Path, *, state: int, actions: int, fields: Sequence[str] = MEASURED) -> Statistics:
    """Read openpi's JSON: `norm_stats` of `state` and `actions`, each with `mean`, `std`, `q01` and `q99`.

    Statistics padded to the model's width are cut to the robot's channels, as in openpi: `state` and
    `actions` are their numbers. Refuses a file that is missing, damaged or incomplete, and quantiles that are
    not a range.
    """
    stats, checked = _statistics_in(path), {}
    for name, size in (("state", state), ("actions", actions)):
        channels, where = _member(stats, name, str(path)), f"{path}: {name}"
        checked[name] = {}
        for field in fields:
            values, place = _member(channels, field, where), f"{where}.{field}"
            if isinstance(values, list) and len(values) == 1 and isinstance(values[0], list):
                values = values[0]  # the row of a table
            if not isinstance(values, list) or not all(
                type(value) in (int, float) and abs(value) <= sys.float_info.max for value in values[:size]
            ):
                told = reprlib.repr(values)
                raise UsageError(
                    f"{place} is {told}; it should be a list of {size} finite numbers. {_REMEDY}"
                )
            if len(values) < size:
                raise UsageError(
                    f"{place} has {len(values)} channels; this robot has {size}, so they are another's. "
                    "Choose the policy's own `embodiment`, or its own file with `norm_stats`"
                )
            checked[name][field] = [float(value) for value in values[:size]]
        try:
            QuantileNorm.of(checked[name])
        except UsageError as error:
            raise UsageError(f"{where}: {error}; `q99` must not be below `q01`. {_REMEDY}") from None
    return checked


def write_statistics(path: Path, measured: Statistics) -> None:
    """Write a `norm_stats.json`, as `read_statistics` reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"norm_stats": measured}, indent=2) + "\n", encoding="utf-8")


_REMEDY = "Compute the statistics again, with openpi's compute_norm_stats.py or eval.train"


def _statistics_in(path: Path) -> Any:
    """The object with `state` and `actions`: under `norm_stats`, or the whole file."""
    try:
        raw = regular(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} is not readable JSON: {str(error)[:200]}") from None
    try:
        content = json.loads(raw)  # UTF-8, -16 or -32, with or without a byte order mark
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not readable JSON: {str(error)[:200]}. {_REMEDY}") from None
    if isinstance(content, dict) and "norm_stats" not in content and {"state", "actions"} <= content.keys():
        return content
    return _member(content, "norm_stats", str(path))


def _member(content: Any, name: str, where: str) -> Any:
    if not isinstance(content, dict):
        raise UsageError(f"{where} holds {reprlib.repr(content)} where an object with {name!r} should be")
    if name not in content:
        there = ", ".join(sorted(map(reprlib.repr, content))[:8]) or "nothing"
        raise UsageError(f"{where} lacks {name!r}; it has {there}. {_LACKS.get(name, _REMEDY)}")
    if content[name] is None:
        raise UsageError(f"{where}.{name} is null, a missing value. {_LACKS.get(name, _REMEDY)}")
    return content[name]


_LACKS = {
    "norm_stats": "Put `state` and `actions` of this robot into an object `norm_stats`",
    "actions": "Rename what holds the actions' statistics to `actions`",
    "state": "Rename what holds the state's statistics to `state`",
}
"""The remedy for a missing part of the file; for statistics of channels it is `_REMEDY`."""
