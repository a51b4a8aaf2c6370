"""Parts of host arrays can be given back while the rest is used."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from oxygen.model import host_memory

_MIB = 1 << 20


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_a_released_layer_frees_its_memory_and_keeps_the_others():
    stack = host_memory.empty((4, 32 * _MIB), np.dtype(np.uint8))
    stack[...] = 1
    before = _resident()
    host_memory.release(stack[1])
    assert before - _resident() > 30 * _MIB
    assert [int(layer.min()) for layer in stack] == [1, 0, 1, 1]


def test_empty_and_other_arrays_are_left_alone():
    assert [host_memory.empty(shape, np.dtype(np.float32)).shape for shape in ((), (0, 3))] == [(), (0, 3)]
    array = np.ones((2, 3 * mmap.PAGESIZE), np.uint8)
    host_memory.release(array[0])
    assert array.all()
    strided = host_memory.empty((4, mmap.PAGESIZE), np.dtype(np.uint8))
    strided[...] = 1
    host_memory.release(strided[:, ::2])
    host_memory.release(strided[0, :100])  # less than a page
    assert strided.all()
