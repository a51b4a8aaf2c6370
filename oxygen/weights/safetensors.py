"""Safetensors files, read and written piece by piece, cast on the way.

Hugging Face's own package needs whole tensors in memory.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from operator import index
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from configs.errors import UsageError
from configs.paths import regular
from oxygen.typing import Float
from oxygen.weights.checkpoint import Stored, fill

SUFFIX = ".safetensors"
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_TYPES = {
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
_NAMES = {name: code for code, name in _TYPES.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SafetensorsFile:
    """An opened file: its tensors, and the offset of each, bytes from the start of the file."""

    file: Path
    tensors: Mapping[str, Stored]
    offsets: Mapping[str, int]

    def read(self, path: str, out: Float[np.ndarray, "..."]) -> None:
        """See `Checkpoint.read`."""
        with self.file.open("rb", buffering=0) as stream:
            stream.seek(self.offsets[path])
            try:
                fill(out, stream, self.tensors[path].dtype)
            except EOFError as error:
                raise UsageError(f"{self.file}, {path}: {error}. {_AGAIN}") from None


_AGAIN = "Fetch or convert it again"


def open_safetensors(file: Path) -> SafetensorsFile:
    """Read a file's header and check it against the file's size.

    Raises:
        UsageError: It is not a safetensors file, or truncated.
    """
    size = file.stat().st_size
    header, begin = _header(file, size)
    tensors, offsets, end = {}, {}, begin
    try:
        for path, entry in header.items():
            if path == "__metadata__":
                continue
            tensors[path], (first, last) = _stored(entry)
            offsets[path] = begin + first
            end = max(end, begin + last)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{file} has a damaged header ({type(error).__name__}: {error}). {_AGAIN}") from None
    if end > size:
        raise UsageError(f"{file} is cut short: {size} bytes of {end}. {_AGAIN}")
    return SafetensorsFile(file=file, tensors=tensors, offsets=offsets)


def _header(file: Path, size: int) -> tuple[dict[str, Any], int]:
    """The JSON header, and its end in the file."""
    with regular(file).open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if not 2 <= length <= min(_MAX_HEADER_BYTES, size - _LENGTH_BYTES):
            raise UsageError(f"{file} is not a safetensors file, or cut short in its header ({size} bytes)")
        text = stream.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise UsageError(f"{file} is not a safetensors file: its header is no JSON object")
    return header, _LENGTH_BYTES + length


def _stored(entry: Mapping[str, Any]) -> tuple[Stored, tuple[int, int]]:
    """A header entry's tensor, and the range of its bytes."""
    shape = tuple(index(size) for size in entry["shape"])
    first, last = (index(offset) for offset in entry["data_offsets"])
    dtype = _TYPES[entry["dtype"]]
    if min((*shape, first), default=0) < 0 or last - first != math.prod(shape) * jnp.dtype(dtype).itemsize:
        raise ValueError(f"{last - first} bytes from {first} for {entry['dtype']}{list(shape)}")
    return Stored(shape=shape, dtype=dtype), (first, last)


def write_safetensors(
    file: Path,
    tensors: Mapping[str, Stored],
    read: Callable[[str, Float[np.ndarray, "..."]], None],
    metadata: Mapping[str, str],
) -> None:
    """Write a file, holding one tensor at a time.

    Args:
        file: The file, which must not exist.
        tensors: Shapes and types by path.
        read: Fills an array with the tensor of a path, as `Checkpoint.read` does.
        metadata: Metadata of the header.
    """
    # The widest types come first, so that every tensor is aligned to its own type.
    order = sorted(tensors, key=lambda path: (-jnp.dtype(tensors[path].dtype).itemsize, path))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for path in order:
        tensor = tensors[path]
        end = offset + math.prod(tensor.shape) * jnp.dtype(tensor.dtype).itemsize
        header[path] = {"dtype": _NAMES[tensor.dtype], "shape": tensor.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    with file.open("xb") as stream:
        stream.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        for path in order:
            array = np.empty(tensors[path].shape, jnp.dtype(tensors[path].dtype))
            read(path, array)
            stream.write(array.reshape(-1).view(np.uint8).data)
