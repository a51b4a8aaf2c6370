"""Large compressed chunks of zarr arrays, decompressed as a stream.

Orbax writes an array that one process holds as one chunk: 4.8 GB for the largest layer stack of π0.5.
TensorStore would hold it compressed and decompressed before casting. A stream needs a few pieces of 1 MiB.
"""

import importlib.util
import math
from typing import Any

from oxygen.weights.checkpoint import PIECE_BYTES, Stream

Region = tuple[slice, ...]


def open_chunk(array: Any, region: Region) -> Stream | None:
    """Open a chunk as a stream of its numbers, in the stored type and C order.

    Args:
        array: An open TensorStore.
        region: The part of it that the chunk holds.

    Returns:
        None if TensorStore should read the chunk: it is small, absent, cut off at the array's edge, or not
        plain zstandard in C order; or the package zstandard is not installed.
    """
    chunk = array.chunk_layout.read_chunk.shape
    size = math.prod(chunk) * array.dtype.numpy_dtype.itemsize
    whole = chunk == tuple(axis.stop - axis.start for axis in region)
    if size <= 2 * PIECE_BYTES or not whole or importlib.util.find_spec("zstandard") is None:
        return None
    stored = array.spec().to_json().get("metadata", {})
    if not _is_plain_zstd(stored):
        return None
    index = (axis.start // step for axis, step in zip(region, chunk, strict=True))
    key = stored["dimension_separator"].join(map(str, index))
    if array.kvstore.read(key, byte_range=slice(0, 1)).result().state != "value":
        return None
    import zstandard

    decompressor: Any = zstandard.ZstdDecompressor()  # its types ask for more of a file than it reads
    reader: Stream = decompressor.stream_reader(_ValueFile(array.kvstore, key), read_size=PIECE_BYTES)
    return reader


def _is_plain_zstd(stored: dict[str, Any]) -> bool:
    return (
        stored.get("zarr_format") == 2
        and (stored.get("compressor") or {}).get("id") == "zstd"
        and stored.get("order") == "C"
        and not stored.get("filters")
        and str(stored.get("dtype")) in ("<f4", "<f2", "<f8", "bfloat16")
    )


class _ValueFile:
    """A value of a TensorStore key-value store as a sequential file."""

    def __init__(self, kvstore: Any, key: str) -> None:
        self._kvstore = kvstore
        self._key = key
        self._at = 0

    def read(self, size: int) -> bytes:
        """The next `size` bytes, or those left."""
        try:
            piece = self._range(self._at, self._at + size)
        except ValueError:  # TensorStore's error for a range beyond the end
            piece = self._range(self._at, None)
        self._at += len(piece)
        return piece

    def _range(self, start: int, stop: int | None) -> bytes:
        return bytes(self._kvstore.read(self._key, byte_range=slice(start, stop)).result().value)
