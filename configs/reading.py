"""Reads text, JSON, YAML and `.npz` files of users; errors are one line."""

import json
import zipfile
import zlib
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.errors import UsageError
from configs.paths import regular

if TYPE_CHECKING:
    import numpy as np

_NPZ_ERRORS = (
    *(OSError, ValueError, TypeError, KeyError, EOFError, NotImplementedError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Raised by zipfile and NumPy for damaged files."""


def read_text(path: Path | Traversable) -> str:
    """The text of a UTF-8 file.

    Raises:
        UsageError: It cannot be read, or is not UTF-8.
    """
    try:
        return (regular(path) if isinstance(path, Path) else path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}") from None


def read_json_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object.

    Raises:
        UsageError: It cannot be read, is not JSON, or holds something else.
    """
    return parse_json_object(read_text(path), str(path))


def parse_json_object(text: str | bytes, source: str) -> dict[str, Any]:
    """The value of a JSON text that holds an object.

    Raises:
        UsageError: It is not JSON, or holds something else.
    """
    content = parse_json(text, source)
    if not isinstance(content, dict):
        raise UsageError(f"{source}: holds {type(content).__name__}, should hold an object")
    return content


def parse_json(text: str | bytes, source: str) -> Any:
    """The value of a JSON text.

    Raises:
        UsageError: It is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source}: not JSON: {_reason(error)}") from None


def parse_yaml(text: str, source: str) -> Any:
    """The value of a YAML text with tags of plain values only.

    Raises:
        UsageError: It is not YAML.
    """
    import yaml  # the policy alone does without it

    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{source}: not YAML: {_reason(error)}") from None


def read_npz(path: Path) -> "dict[str, np.ndarray]":
    """The arrays of an `.npz` file.

    Raises:
        UsageError: It cannot be read, is not an `.npz` file, or holds objects.
    """
    import numpy as np

    try:
        with np.load(regular(path), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except _NPZ_ERRORS as error:
        raise UsageError(f"{str(path)!r} is not a readable .npz file: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
