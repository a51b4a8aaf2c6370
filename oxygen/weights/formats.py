"""Checkpoints on disk: Orbax's, as openpi publishes them, and safetensors files.

Orbax's are zarr arrays in one OCDBT store, or in a folder each. They are read through TensorStore, as by
Orbax, but array by array and chunk by chunk, to save memory. Orbax writes an array that one process holds as
one chunk: 4.8 GB for the largest layer stack of π0.5. TensorStore would hold it compressed and decompressed
before casting, so large chunks are decompressed here, as a stream.
"""

import contextlib
import dataclasses
import itertools
import json
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any

import jax.numpy as jnp
import numpy as np

from configs.paths import read_json_object, regular
from contracts.errors import UsageError
from oxygen.model.params import Shape
from oxygen.typing import Float
from oxygen.weights.remedies import (
    INDEX_FILE,
    METADATA,
    SINGLE_FILE,
    SUFFIX,
    damage,
    no_weights,
    require_finished,
)

_PIECE_BYTES = 1 << 24  # safetensors are read in pieces of at most this size
_STREAM_BYTES = 1 << 20  # streams are buffered in pieces of this size (1 MiB), a few at a time
_LARGE_BYTES = 1 << 26
_ONE_LARGE = threading.Lock()  # TensorStore holds a whole chunk twice; several tensors are read at a time
_SAFETENSORS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}

KeyPath = tuple[str, ...]


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


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint on disk, of any supported format; refuses a damaged one. Reads no tensor.

    Reading a tensor that holds NaN or infinity raises a UsageError.
    """
    try:
        opener, place = _found_at(path)
        checkpoint = opener(place)
    except OSError as error:
        raise UsageError(f"{error.filename or path} cannot be read: {error.strerror}") from None
    prefix = common_prefix(checkpoint.tensors)

    def read(name: str, out: np.ndarray) -> None:
        checkpoint.read(prefix + name, out)
        if not _is_finite(out):
            raise UsageError(
                f"{path} holds NaN or infinity in {name}, or numbers beyond {out.dtype.name}: the training "
                "diverged, or the file is damaged. Give an earlier checkpoint, or fetch it again"
            )

    tensors = {name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items()}
    return Checkpoint(tensors=tensors, read=read)


def common_prefix(names: Collection[str]) -> str:
    """What stands before all names, up to a `.` or `/`, as `model.` where a whole module was saved."""
    first, last, prefix = min(names, default=""), max(names, default=""), ""
    for part in re.findall("[^./]*[./]", first):
        if not last.startswith(prefix + part):
            break
        prefix += part
    return prefix


def _found_at(path: Path) -> tuple[Callable[[Path], Checkpoint], Path]:
    """What opens the checkpoint at a path, and where it is; a UsageError with the remedy if there is none."""
    require_finished(path)
    if path.is_file() and path.suffix == SUFFIX:
        return open_safetensors, path
    if path.is_dir():
        for opener, place in ((open_safetensors, path / SINGLE_FILE), (open_sharded, path / INDEX_FILE)):
            if place.is_file():
                return opener, place
        for folder in (path, path / "params"):
            if (folder / METADATA).is_file():
                return open_orbax, folder
    raise no_weights(path)


def _is_finite(array: Float[np.ndarray, "..."]) -> bool:
    """Whether an array holds neither NaN nor infinity: by its bits, in a tenth of `isfinite`'s time."""
    unsigned, signed = (np.dtype(f"{kind}{array.dtype.itemsize}") for kind in "ui")
    inf, minus_inf = np.array([np.inf, -np.inf]).astype(array.dtype).view(unsigned)
    # As integers, the positive numbers grow towards infinity and NaN; so do the negative ones, unsigned.
    positive, negative = array.view(signed).max(initial=0), array.view(unsigned).max(initial=0)
    return bool(positive < inf and negative < minus_inf)


def open_orbax(folder: Path) -> Checkpoint:
    """Read the paths and shapes of the arrays in a folder with `_METADATA`; refuses all but arrays."""
    import tensorstore

    def damaged(what: str, error: Exception) -> UsageError:
        reason = (str(error).splitlines() or [""])[0][:200]
        return UsageError(
            f"{folder} cannot be read at {what} ({type(error).__name__}: {reason}). Fetch it again"
        )

    regular(folder / METADATA)
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
        raise damaged(METADATA, error) from None
    futures = {
        path: tensorstore.open(specs[keys], open=True, read=True)
        for path, keys in openpi_paths(specs).items()
    }
    arrays: dict[str, Any] = {}
    for path, future in futures.items():
        try:
            arrays[path] = future.result()
        except (ValueError, OSError) as error:
            raise damaged(path, error) from None

    def read(path: str, out: np.ndarray) -> None:
        array = arrays[path]
        chunk = array.chunk_layout.read_chunk.shape
        starts = (range(0, size, step) for size, step in zip(array.shape, chunk, strict=True))
        try:
            for start in itertools.product(*starts):
                region = tuple(slice(at, at + step) for at, step in zip(start, chunk, strict=True))
                _read_chunk(array, region, out[(*region, ...)])
        except (ValueError, OSError, EOFError) as error:
            raise damaged(path, error) from None

    tensors = {path: Stored(shape=tuple(a.shape), dtype=a.dtype.name) for path, a in arrays.items()}
    return Checkpoint(tensors=tensors, read=read)


def _read_chunk(array: Any, region: tuple[slice, ...], out: Float[np.ndarray, "..."]) -> None:
    """Fill `out` with a chunk; a large one piece by piece."""
    import tensorstore

    stored = jnp.dtype(array.dtype.name)
    large = out.size * stored.itemsize > 2 * _STREAM_BYTES
    stream = _open_stream(array, region, out) if large else None
    if stream is None:
        with _ONE_LARGE if out.size * stored.itemsize > _LARGE_BYTES else contextlib.nullcontext():
            box = tuple(
                slice(axis.start, axis.start + size) for axis, size in zip(region, out.shape, strict=True)
            )
            out[...] = tensorstore.cast(array, out.dtype)[box].read().result()
        return
    flat = out.reshape(-1)
    piece = np.empty(_STREAM_BYTES // stored.itemsize, stored)
    for start in range(0, flat.size, len(piece)):
        target = flat[start : start + len(piece)]
        unread = piece[: len(target)].view(np.uint8).data
        while unread:
            count = stream.readinto(unread)
            if not count:
                raise EOFError("the data end in the middle of a tensor")
            unread = unread[count:]
        target[...] = piece[: len(target)]


def _open_stream(array: Any, region: tuple[slice, ...], out: np.ndarray) -> Any:
    """A stream of a chunk's numbers, in the stored type and C order.

    None if TensorStore should read the chunk: it is absent, cut off at the array's edge, not contiguous in
    `out`, or not plain zstandard in C order.
    """
    chunk = array.chunk_layout.read_chunk.shape
    stored = array.spec().to_json().get("metadata", {})
    if (
        chunk != out.shape
        or not out.flags.c_contiguous
        or stored.get("zarr_format") != 2
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
    return decompressor.stream_reader(_ValueFile(array.kvstore, key), read_size=_STREAM_BYTES)


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


def open_sharded(index: Path) -> Checkpoint:
    """Read the headers of the files that an index names. Each tensor must be in its file and in no other."""
    named = read_json_object(index).get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
        raise UsageError(f"{index} has no `weight_map` of tensors to files; fetch it again")
    shards: dict[str, Checkpoint] = {}
    for name in sorted(set(named.values())):
        file = index.parent / name
        if Path(name).name != name or not file.is_file():
            raise UsageError(f"{index} names {name}, which is not beside it; fetch it, too")
        shards[name] = open_safetensors(file)
    places = [(path, name) for name, shard in shards.items() for path in shard.tensors]
    for path, name in sorted(places):
        if named.get(path) != name:
            instead = f"is in {named[path]}" if path in named else "does not exist"
            raise UsageError(
                f"{index.parent / name} holds {path}, which by {index.name} {instead}; fetch all again"
            )
    for path, name in named.items():
        if path not in shards[name].tensors:
            raise UsageError(
                f"{index.parent / name} lacks {path}, which {index.name} says it holds; fetch it again"
            )
    return Checkpoint(
        tensors={path: shards[name].tensors[path] for path, name in named.items()},
        read=lambda path, out: shards[named[path]].read(path, out),
    )


def open_safetensors(file: Path) -> Checkpoint:
    """Read a file's header and check it against the file's size."""
    from safetensors import SafetensorError, safe_open

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        try:
            with safe_open(regular(file), "numpy") as content:
                yield content
        except (SafetensorError, OSError) as error:
            reason = (str(error).splitlines() or [""])[0][:200]
            raise UsageError(f"{file} {damage(file, reason)}. Fetch or convert it again") from None

    def read(path: str, out: np.ndarray) -> None:
        for piece in _pieces(out.shape):
            with opened() as content:  # closing releases the mapped piece
                out[piece] = content.get_slice(path)[piece]

    with opened() as content:
        slices = {path: content.get_slice(path) for path in content.keys()}  # noqa: SIM118 - not a dict
        tensors = {
            path: Stored(
                shape=tuple(tensor.get_shape()),
                dtype=_SAFETENSORS.get(tensor.get_dtype(), tensor.get_dtype()),
            )
            for path, tensor in slices.items()
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


def write_safetensors(file: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by path. They are not copied if they are contiguous and in host memory."""
    from safetensors.numpy import save_file

    contiguous = {path: np.asarray(array, order="C") for path, array in arrays.items()}
    save_file(contiguous, file, metadata={})
