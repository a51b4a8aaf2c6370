"""Safetensors files, read in pieces and cast on the way."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np

from configs.errors import UsageError
from configs.paths import regular
from oxygen.weights.layout import Checkpoint, Stored

SUFFIX = ".safetensors"
_FLOATS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
_PIECE_BYTES = 1 << 24


def open_safetensors(file: Path) -> Checkpoint:
    """Read a file's header and check it against the file's size.

    Raises:
        UsageError: It is not a safetensors file, or truncated.
    """
    from safetensors import SafetensorError, safe_open

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        try:
            with safe_open(regular(file), "numpy") as content:
                yield content
        except (SafetensorError, OSError) as error:
            reason = (str(error).splitlines() or [""])[0][:200]
            raise UsageError(
                f"{file} is not a safetensors file, or damaged ({reason}). Fetch or convert it again"
            ) from None

    def read(path: str, out: np.ndarray) -> None:
        for piece in _pieces(out.shape):
            with opened() as content:  # closing releases the mapped piece
                out[piece] = content.get_slice(path)[piece]

    with opened() as content:
        slices = {path: content.get_slice(path) for path in content.keys()}  # noqa: SIM118 - not a dict
        tensors = {
            path: Stored(shape=tuple(each.get_shape()), dtype=_FLOATS.get(each.get_dtype(), each.get_dtype()))
            for path, each in slices.items()
        }
    return Checkpoint(tensors=tensors, read=read)


def _pieces(shape: tuple[int, ...]) -> Iterator[tuple[int | slice | EllipsisType, ...]]:
    """Partition an array into contiguous pieces of at most `_PIECE_BYTES` in its widest type, or one row."""
    row_bytes, axis = 8, len(shape)
    while axis > 0 and row_bytes <= _PIECE_BYTES:
        axis -= 1
        row_bytes *= max(1, shape[axis])
    if not shape:
        yield (...,)
        return
    rows = max(1, _PIECE_BYTES * max(1, shape[axis]) // row_bytes)
    for index in np.ndindex(shape[:axis]):
        for start in range(0, shape[axis], rows):
            yield *index, slice(start, min(start + rows, shape[axis]))


def write_safetensors(file: Path, arrays: Mapping[str, Any], **metadata: str) -> None:
    """Write arrays by path. They are not copied if they are contiguous and in host memory."""
    from safetensors.numpy import save_file

    contiguous = {path: np.asarray(array, order="C") for path, array in arrays.items()}
    save_file(contiguous, file, metadata=metadata)
