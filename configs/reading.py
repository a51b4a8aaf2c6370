"""Reads text, JSON, YAML and `.npz` files of users; errors are one line."""

import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from configs.errors import UsageError
from configs.paths import regular

if TYPE_CHECKING:
    import numpy as np

_MAX_BYTES = 1_000_000
"""Size limit of a YAML file."""
_MAX_VALUES = 100_000
"""Limit on the values of a YAML document, with anchors expanded."""
_MAX_LEVELS = 100
"""Limit on the nesting of a YAML document."""
_MAX_NPZ_BYTES = 2**33
"""Size limit of an array in an `.npz` file."""
_NPZ_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
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


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        UsageError: It cannot be read, or is not JSON.
    """
    return parse_json(read_text(path), str(path))


def read_json_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object.

    Raises:
        UsageError: It cannot be read, is not JSON, or holds something else.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path}: holds {type(content).__name__}, should hold an object")
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
        UsageError: It is not YAML, too large, nested too deeply, or contains itself.
    """
    import yaml  # the policy alone does without it

    if len(text) > _MAX_BYTES:
        raise UsageError(f"{source}: {len(text)} characters, at most {_MAX_BYTES} are read")
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        depth = 0
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_LEVELS:  # the loader in C would overflow its stack
                raise ValueError(f"more than {_MAX_LEVELS} levels")
        content = yaml.load(text, loader)
        values = _count(content, {})
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{source}: not YAML: {_reason(error)}") from None
    if values > _MAX_VALUES:
        raise UsageError(f"{source}: {values:.0e} values with anchors expanded, at most {_MAX_VALUES}")
    return content


def read_npz(path: Path) -> "dict[str, np.ndarray]":
    """The arrays of an `.npz` file. An array is not larger than its bytes in the file.

    Raises:
        UsageError: It cannot be read, is no such file, or holds objects.
    """
    import numpy as np

    try:
        with zipfile.ZipFile(regular(path)) as archive:
            for member in archive.infolist():
                with archive.open(member) as stream:
                    _check_array(stream, member)
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
    except _NPZ_ERRORS as error:
        raise UsageError(f"{str(path)!r} is not a readable .npz file: {_reason(error)}") from None


def _check_array(stream: IO[bytes], member: zipfile.ZipInfo) -> None:
    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = header(stream)
    claimed = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or claimed > min(member.file_size, _MAX_NPZ_BYTES):
        raise ValueError(f"{member.filename} claims {claimed} bytes and has {member.file_size}")


def _count(content: Any, known: dict[int, int]) -> int:
    """The number of values in a document, anchors expanded; each is visited once."""
    if isinstance(content, str):
        content.encode()  # refuses surrogates
    if not isinstance(content, Mapping | list | set):
        return 1
    if id(content) not in known:
        known[id(content)] = 0
        parts = [*content, *content.values()] if isinstance(content, Mapping) else content
        known[id(content)] = 1 + sum(_count(part, known) for part in parts)
    elif not known[id(content)]:
        raise ValueError("a value contains itself")
    return known[id(content)]


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
