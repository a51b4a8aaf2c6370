"""Checks that a checkpoint has exactly the parameters of a model configuration, with equal shapes."""

import functools
from collections.abc import Iterable, Mapping

from configs.errors import UsageError
from oxygen.model import params
from oxygen.model.config import PRESETS, Pi05Config
from oxygen.model.params import Shape
from oxygen.weights.checkpoint import Stored

_FLOATS = ("bfloat16", "float16", "float32", "float64")
_SHOWN = 3

KeyPath = tuple[str, ...]

_wanted = functools.cache(params.shapes)


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
        raise UsageError(
            f"{source} does not hold the parameters of {config.name!r}: {'; '.join(differences)}. "
            f"{_nearest_hint(found)}"
        )
    for path, tensor in sorted(found.items()):
        if tensor.dtype not in _FLOATS:
            raise UsageError(f"{source} stores {path} as {tensor.dtype}, not as one of {', '.join(_FLOATS)}")


def fitting(found: Mapping[str, Stored]) -> list[str]:
    """Known configurations with exactly these parameters."""
    return [name for name, preset in PRESETS.items() if not _differences(found, _wanted(preset))]


def nearest(found: Mapping[str, Stored]) -> Pi05Config:
    """The known configuration with the most parameters in common with `found`."""
    return max(PRESETS.values(), key=lambda preset: _agreeing(found, _wanted(preset)))


def _differences(found: Mapping[str, Stored], wanted: Mapping[str, Shape]) -> list[str]:
    reshaped = [
        f"{path} {list(found[path].shape)} instead of {list(wanted[path])}"
        for path in sorted(found.keys() & wanted.keys())
        if found[path].shape != wanted[path]
    ]
    kinds = {
        "missing": sorted(wanted.keys() - found.keys()),
        "not known": sorted(found.keys() - wanted.keys()),
        "of another shape": reshaped,
    }
    return [
        f"{_listed(paths)} {'is' if len(paths) == 1 else 'are'} {kind}"
        for kind, paths in kinds.items()
        if paths
    ]


def _listed(paths: list[str]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(paths[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _nearest_hint(found: Mapping[str, Stored]) -> str:
    fits = fitting(found)
    if fits:
        return f"It holds those of {' or '.join(map(repr, fits))}"
    preset = nearest(found)
    wanted = _wanted(preset)
    return (
        f"The nearest known configuration is {preset.name!r}: {_agreeing(found, wanted)} of its "
        f"{len(wanted)} parameters are there"
    )


def _agreeing(found: Mapping[str, Stored], wanted: Mapping[str, Shape]) -> int:
    return sum(path in found and found[path].shape == shape for path, shape in wanted.items())
