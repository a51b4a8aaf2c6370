"""Parses `--policy-kwargs`: `key=value`, each value a YAML scalar."""

import re
from collections.abc import Sequence
from typing import Any

from configs.errors import UsageError
from configs.reading import parse_yaml

_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
"""Numbers such as 1e-3, which YAML 1.1 reads as strings."""


def read_kwargs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse keyword arguments: `scale=0.5 name=mine fast=true`.

    Raises:
        UsageError: A pair is malformed, its key is not an identifier, or it is given twice.
    """
    kwargs: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"policy argument {pair!r} is no pair; write key=value, such as scale=0.5")
        if key in kwargs:
            raise UsageError(f"policy argument {key!r} is given twice; give it once")
        kwargs[key] = _scalar(key, value)
    return kwargs


def _scalar(key: str, text: str) -> str | int | float | bool | None:
    if _EXPONENT.fullmatch(text):
        return float(text)
    try:
        value = parse_yaml(text, key)
    except UsageError:
        value = ...
    if isinstance(value, str | int | float | bool | None):
        return value
    raise UsageError(
        f"policy argument {key!r} is {text!r}; give a number, true, false, null or a (quoted) word"
    )
