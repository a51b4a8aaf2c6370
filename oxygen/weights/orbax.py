"""Orbax checkpoints as openpi publishes them: zarr arrays in one OCDBT store, or in a folder each.

Read through TensorStore, as by Orbax, but array by array and chunk by chunk, to save memory. Orbax writes an
array that one process holds as one chunk: 4.8 GB for the largest layer stack of π0.5. TensorStore would hold
it compressed and decompressed before casting, so large chunks are decompressed here, as a stream.
"""

import contextlib
import dataclasses
import importlib.util
import itertools
import json
import math
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from configs.errors import UsageError
from oxygen.typing import Float
from oxygen.weights.layout import KeyPath, Stored, openpi_paths

METADATA = "_METADATA"
_PIECE_BYTES = 1 << 20
"""Streams are buffered in pieces of this size (1 MiB), a few at a time."""
_LARGE_BYTES = 1 << 26
_ONE_LARGE = threading.Lock()  # TensorStore holds a whole chunk twice; several tensors are read at a time

_Region = tuple[slice, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrbaxFolder:
    """An opened checkpoint: its tensors, and an open TensorStore of each."""

    folder: Path
    tensors: Mapping[str, Stored]
    arrays: Mapping[str, Any]

    def read(self, path: str, out: Float[np.ndarray, "..."]) -> None:
        """Fill `out`, contiguous and of the tensor's shape, casting to its type piece by piece.

        Raises:
            UsageError: The file is truncated or damaged.
        """
        array = self.arrays[path]
        try:
            for region in _regions(array):
                _read_region(array, region, out[region])
        except (ValueError, OSError, EOFError) as error:
            raise _damaged(self.folder, path, error) from None


def open_orbax(folder: Path) -> OrbaxFolder:
    """Read the paths and shapes of a checkpoint's arrays.

    Args:
        folder: The folder that contains `_METADATA`.

    Raises:
        UsageError: It cannot be read, or holds something other than arrays.
    """
    import tensorstore

    specs: dict[KeyPath, dict[str, Any]] = {}  # TensorStore's, of every array, from Orbax's metadata
    try:
        document = json.loads((folder / METADATA).read_bytes())
        spec: dict[str, Any] = {"driver": "zarr3" if document.get("use_zarr3") else "zarr"}
        if document.get("store_array_data_equal_to_fill_value"):  # an absent chunk is a loss, not zeros
            spec["fill_missing_data_reads"] = False
        in_one_store = document.get("use_ocdbt", (folder / "manifest.ocdbt").exists())
        for leaf in document["tree_metadata"].values():
            path = tuple(str(key["key"]) for key in leaf["key_metadata"])
            kind = leaf["value_metadata"]["value_type"]
            if kind not in ("jax.Array", "np.ndarray"):
                raise ValueError(f"{'/'.join(path)} is not an array but a {kind}")
            store: dict[str, Any] = {"driver": "file", "path": f"{folder}/{'.'.join(path)}/"}
            if in_one_store:
                base = {"driver": "file", "path": f"{folder}/"}
                store = {"driver": "ocdbt", "base": base, "path": f"{'.'.join(path)}/"}
            specs[path] = {**spec, "kvstore": store}
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise _damaged(folder, METADATA, error) from None
    paths = openpi_paths(specs)
    opened = {path: tensorstore.open(specs[keys], open=True, read=True) for path, keys in paths.items()}
    arrays = {}
    for path, future in opened.items():
        try:
            arrays[path] = future.result()
        except (ValueError, OSError) as error:
            raise _damaged(folder, path, error) from None
    tensors = {path: Stored(shape=tuple(a.shape), dtype=a.dtype.name) for path, a in arrays.items()}
    return OrbaxFolder(folder=folder, tensors=tensors, arrays=arrays)


def _regions(array: Any) -> Iterator[_Region]:
    """Partition an array into regions of one large chunk, or of small ones that make up a few MiB."""
    step = list(array.chunk_layout.read_chunk.shape)
    for axis in reversed(range(len(step))):
        step_bytes = math.prod(step) * array.dtype.numpy_dtype.itemsize
        step[axis] *= max(1, min(4 * _PIECE_BYTES // step_bytes, -(-array.shape[axis] // step[axis])))
        if step[axis] < array.shape[axis]:
            break
    axes = [
        [slice(start, min(start + stride, size)) for start in range(0, size, stride)]
        for size, stride in zip(array.shape, step, strict=True)
    ]
    return itertools.product(*axes)


def _read_region(array: Any, region: _Region, out: Float[np.ndarray, "..."]) -> None:
    import tensorstore

    stream = _open_stream(array, region) if out.flags.c_contiguous else None
    if stream is None:
        large = out.size * array.dtype.numpy_dtype.itemsize > _LARGE_BYTES
        with _ONE_LARGE if large else contextlib.nullcontext():
            out[...] = tensorstore.cast(array, out.dtype)[region].read().result()
        return
    stored = jnp.dtype(array.dtype.name)
    flat = out.reshape(-1)
    piece = np.empty(min(_PIECE_BYTES // stored.itemsize, flat.size), stored)
    for start in range(0, flat.size, len(piece)):
        target = flat[start : start + len(piece)]
        room = piece[: len(target)].view(np.uint8).data
        while room:
            count = stream.readinto(room)
            if not count:
                raise EOFError("the data end in the middle of a tensor")
            room = room[count:]
        target[...] = piece[: len(target)]


def _open_stream(array: Any, region: _Region) -> Any:
    """A stream of a chunk's numbers, in the stored type and C order.

    Returns:
        None if TensorStore should read the chunk: it is small, absent, cut off at the array's edge, or not
        plain zstandard in C order; or the package zstandard is not installed.
    """
    chunk = array.chunk_layout.read_chunk.shape
    size = math.prod(chunk) * array.dtype.numpy_dtype.itemsize
    whole = chunk == tuple(axis.stop - axis.start for axis in region)
    if size <= 2 * _PIECE_BYTES or not whole or importlib.util.find_spec("zstandard") is None:
        return None
    stored = array.spec().to_json().get("metadata", {})
    if (
        stored.get("zarr_format") != 2
        or (stored.get("compressor") or {}).get("id") != "zstd"
        or stored.get("order") != "C"
        or stored.get("filters")
        or str(stored.get("dtype")) not in ("<f4", "<f2", "<f8", "bfloat16")
    ):
        return None
    index = (axis.start // step for axis, step in zip(region, chunk, strict=True))
    key = stored["dimension_separator"].join(map(str, index))
    if array.kvstore.read(key, byte_range=slice(0, 1)).result().state != "value":
        return None
    import zstandard

    decompressor: Any = zstandard.ZstdDecompressor()  # its types ask for more of a file than it reads
    return decompressor.stream_reader(_ValueFile(array.kvstore, key), read_size=_PIECE_BYTES)


class _ValueFile:
    """A value of a TensorStore key-value store as a sequential file."""

    def __init__(self, kvstore: Any, key: str) -> None:
        self._kvstore, self._key, self._at = kvstore, key, 0

    def read(self, size: int) -> bytes:
        """The next `size` bytes, or those left."""
        try:
            piece = self._range(self._at + size)
        except ValueError:  # TensorStore's error for a range beyond the end
            piece = self._range(None)
        self._at += len(piece)
        return piece

    def _range(self, stop: int | None) -> bytes:
        return bytes(self._kvstore.read(self._key, byte_range=slice(self._at, stop)).result().value)


def _damaged(folder: Path, what: str, error: Exception) -> UsageError:
    reason = (str(error).splitlines() or [""])[0][:200]
    return UsageError(f"{folder} cannot be read at {what} ({type(error).__name__}: {reason}). Fetch it again")
