"""Orbax checkpoints as openpi publishes them: zarr arrays in one OCDBT store, or in a folder each.

Read through TensorStore, as by Orbax, but array by array and chunk by chunk, to save memory. Large chunks are
decompressed as a stream (`zstd_chunk`).
"""

import contextlib
import dataclasses
import itertools
import json
import math
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import UsageError
from oxygen.typing import Float
from oxygen.weights import zstd_chunk
from oxygen.weights.checkpoint import PIECE_BYTES, Stored, fill
from oxygen.weights.layout import KeyPath, openpi_paths

METADATA = "_METADATA"
_LARGE_BYTES = 1 << 26
_ONE_LARGE = threading.Lock()  # TensorStore holds a whole chunk twice; several tensors are read at a time


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrbaxFolder:
    """An opened checkpoint: its tensors, and an open TensorStore of each."""

    folder: Path
    tensors: Mapping[str, Stored]
    arrays: Mapping[str, Any]

    def read(self, path: str, out: Float[np.ndarray, "..."]) -> None:
        """See `Checkpoint.read`."""
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

    specs = _tensorstore_specs(folder)
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


def _tensorstore_specs(folder: Path) -> dict[KeyPath, dict[str, Any]]:
    """TensorStore's spec of every array, by its path, from Orbax's metadata."""
    try:
        document = json.loads((folder / METADATA).read_bytes())
        spec: dict[str, Any] = {"driver": "zarr3" if document.get("use_zarr3") else "zarr"}
        if document.get("store_array_data_equal_to_fill_value"):  # an absent chunk is a loss, not zeros
            spec["fill_missing_data_reads"] = False
        in_one_store = document.get("use_ocdbt", (folder / "manifest.ocdbt").exists())
        keys = [_key_path(leaf) for leaf in document["tree_metadata"].values()]
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise _damaged(folder, METADATA, error) from None
    base = {"driver": "file", "path": f"{folder}/"}
    if in_one_store:
        stores = {path: {"driver": "ocdbt", "base": base, "path": f"{'.'.join(path)}/"} for path in keys}
    else:
        stores = {path: {"driver": "file", "path": f"{folder}/{'.'.join(path)}/"} for path in keys}
    return {path: {**spec, "kvstore": store} for path, store in stores.items()}


def _key_path(leaf: Mapping[str, Any]) -> KeyPath:
    path = tuple(str(key["key"]) for key in leaf["key_metadata"])
    kind = leaf["value_metadata"]["value_type"]
    if kind not in ("jax.Array", "np.ndarray"):
        raise ValueError(f"{'/'.join(path)} is no array but a {kind}")
    return path


def _regions(array: Any) -> Iterator[zstd_chunk.Region]:
    """Partition an array into regions of one large chunk, or of small ones that make up a few MiB."""
    step = list(array.chunk_layout.read_chunk.shape)
    for axis in reversed(range(len(step))):
        step_bytes = math.prod(step) * array.dtype.numpy_dtype.itemsize
        step[axis] *= max(1, min(4 * PIECE_BYTES // step_bytes, -(-array.shape[axis] // step[axis])))
        if step[axis] < array.shape[axis]:
            break
    axes = [
        [slice(start, min(start + stride, size)) for start in range(0, size, stride)]
        for size, stride in zip(array.shape, step, strict=True)
    ]
    return itertools.product(*axes)


def _read_region(array: Any, region: zstd_chunk.Region, out: Float[np.ndarray, "..."]) -> None:
    import tensorstore

    stream = zstd_chunk.open_chunk(array, region) if out.flags.c_contiguous else None
    if stream is not None:
        fill(out, stream, array.dtype.name)
        return
    large = out.size * array.dtype.numpy_dtype.itemsize > _LARGE_BYTES
    with _ONE_LARGE if large else contextlib.nullcontext():
        out[...] = tensorstore.cast(array, out.dtype)[region].read().result()


def _damaged(folder: Path, what: str, error: Exception) -> UsageError:
    reason = (str(error).splitlines() or [""])[0][:200]
    return UsageError(f"{folder} cannot be read at {what} ({type(error).__name__}: {reason}). Fetch it again")
