"""Host arrays whose memory can be released part by part."""

import math
import mmap
from typing import Any

import numpy as np

_PAGE_BYTES = mmap.PAGESIZE


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An array in its own memory pages, aligned so that a CPU device does not copy it."""
    size = math.prod(shape)
    # Shared memory, mmap's default, is not freed by `release`.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    pages = mmap.mmap(-1, max(1, size * dtype.itemsize), flags=private)
    return np.frombuffer(pages, dtype, size).reshape(shape)


def release(part: Any) -> None:
    """Return a part's memory to the system; its values become zeros.

    Frees whole pages, and only of arrays made by `empty`; has no effect on others.
    """
    pages = part
    while isinstance(pages, np.ndarray):
        pages = pages.base
    pages = pages.obj if isinstance(pages, memoryview) else None
    if not isinstance(pages, mmap.mmap) or not part.flags.c_contiguous:
        return
    start = part.ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    first, last = -(-start // _PAGE_BYTES), (start + part.nbytes) // _PAGE_BYTES
    if last > first:
        pages.madvise(mmap.MADV_DONTNEED, first * _PAGE_BYTES, (last - first) * _PAGE_BYTES)
