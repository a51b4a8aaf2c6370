"""The checkpoint interface: list the tensors, and read one into an existing array."""

import dataclasses
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np

from oxygen.model.params import Shape
from oxygen.typing import Float

PIECE_BYTES = 1 << 20
"""Readers buffer pieces of this size (1 MiB), a few at a time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """Shape of a stored tensor, and NumPy's name of its type, or `bfloat16`."""

    shape: Shape
    dtype: str


@runtime_checkable
class Checkpoint(Protocol):
    """An opened checkpoint, before any tensor is read."""

    @property
    def tensors(self) -> Mapping[str, Stored]:
        """Tensors by openpi's `/`-joined paths."""

    def read(self, path: str, out: Float[np.ndarray, "..."]) -> None:
        """Fill `out`, contiguous and of the tensor's shape, casting to its type piece by piece.

        Raises:
            UsageError: The file is truncated or damaged.
        """


@runtime_checkable
class Stream(Protocol):
    """A source of bytes, such as an unbuffered file."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill some of `buffer` from its start; returns the number of bytes, 0 at the end."""


def fill(out: Float[np.ndarray, "..."], stream: Stream, dtype: str) -> None:
    """Fill `out`, contiguous, with a stream's numbers of type `dtype`, holding one piece beside it.

    Raises:
        EOFError: The stream ends before `out` is full.
    """
    flat = out.reshape(-1)
    stored = jnp.dtype(dtype)
    at_once = PIECE_BYTES // stored.itemsize
    cast_from = None if stored == flat.dtype else np.empty(min(at_once, flat.size), stored)
    for start in range(0, flat.size, at_once):
        target = flat[start : start + at_once]
        if cast_from is None:
            _fill_bytes(target, stream)
        else:
            piece = cast_from[: target.size]
            _fill_bytes(piece, stream)
            target[...] = piece


def _fill_bytes(piece: Float[np.ndarray, "..."], stream: Stream) -> None:
    room = piece.view(np.uint8).data
    while room:
        count = stream.readinto(room)
        if not count:
            raise EOFError("the data end in the middle of a tensor")
        room = room[count:]
