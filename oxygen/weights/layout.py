"""Checks that a checkpoint has exactly the parameters of a model configuration, with equal shapes."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from configs.errors import UsageError
from oxygen.model import params
from oxygen.model.config import PRESETS, Pi05Config
from oxygen.model.params import Shape

_FLOATS = ("bfloat16", "float16", "float32", "float64")
_SHOWN = 3

KeyPath = tuple[str, ...]

_wanted = functools.cache(params.shapes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """Shape of a stored tensor, and NumPy's name of its type, or `bfloat16`."""

    shape: Shape
    dtype: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """An opened checkpoint, before any tensor is read."""

    tensors: Mapping[str, Stored]  # the tensors by path
    # Fills an array of a tensor's shape, casting to its type piece by piece. Raises UsageError where the file
    # is truncated or damaged.
    read: Callable[[str, np.ndarray], None]


def openpi_paths(stored: Iterable[KeyPath]) -> dict[str, KeyPath]:
    """Map openpi's `/`-joined paths to a checkpoint's keys.

    Training saves parameters under `params`, sometimes beside other state, and `nnx.State` puts `value`
    behind every key; openpi undoes both when it restores (`restore_params` in its `models/model.py`).
    """
    keys = list(stored)
    below = {key[1:]: key for key in keys if len(key) > 1 and key[0] == "params"} or {
        key: key for key in keys
    }
    if below and all(len(key) > 1 and key[-1] == "value" for key in below):
        below = {key[:-1]: original for key, original in below.items()}
    return {"/".join(key): original for key, original in below.items()}


def check(found: Mapping[str, Stored], config: Pi05Config, source: str) -> None:
    """Check a checkpoint's tensors against the parameters of `config`. Reads no tensor.

    Raises:
        UsageError: Paths or shapes differ, or a tensor is not floating-point. Names the first differing paths
            and the nearest known configuration.
    """
    differences = _differences(found, _wanted(config))
    if differences:
        fits, near = fitting(found), nearest(found)
        hint = (
            f"It holds those of {' or '.join(map(repr, fits))}"
            if fits
            else f"The nearest known configuration is {near.name!r}: {_agreeing(found, near)} of its "
            f"{len(_wanted(near))} parameters are there"
        )
        raise UsageError(
            f"{source} does not hold the parameters of {config.name!r}: {'; '.join(differences)}. {hint}"
        )
    for path, tensor in sorted(found.items()):
        if tensor.dtype not in _FLOATS:
            raise UsageError(f"{source} stores {path} as {tensor.dtype}, not as one of {', '.join(_FLOATS)}")


def fitting(found: Mapping[str, Stored]) -> list[str]:
    """Known configurations with exactly these parameters."""
    return [name for name, preset in PRESETS.items() if not _differences(found, _wanted(preset))]


def nearest(found: Mapping[str, Stored]) -> Pi05Config:
    """The known configuration with the most parameters in common with `found`."""
    return max(PRESETS.values(), key=lambda preset: _agreeing(found, preset))


def _agreeing(found: Mapping[str, Stored], config: Pi05Config) -> int:
    return sum(path in found and found[path].shape == shape for path, shape in _wanted(config).items())


def _differences(found: Mapping[str, Stored], wanted: Mapping[str, Shape]) -> list[str]:
    kinds = {
        "missing": sorted(wanted.keys() - found.keys()),
        "not known": sorted(found.keys() - wanted.keys()),
        "of another shape": [
            f"{path} {list(found[path].shape)} instead of {list(wanted[path])}"
            for path in sorted(found.keys() & wanted.keys())
            if found[path].shape != wanted[path]
        ],
    }
    return [
        f"{', '.join(paths[:_SHOWN])}{f' and {len(paths) - _SHOWN} more' if len(paths) > _SHOWN else ''} "
        f"{'is' if len(paths) == 1 else 'are'} {kind}"
        for kind, paths in kinds.items()
        if paths
    ]
