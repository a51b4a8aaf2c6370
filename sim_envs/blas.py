"""Pins OpenBLAS kernels, so that LIBERO's trajectories are the same on all CPU models.

robosuite's controller multiplies and inverts small matrices through NumPy's and SciPy's OpenBLAS, which picks
its kernels by CPU model. Kernels differ in the last bit, and contacts amplify that to millimetres within an
episode. The reference trajectories use the AVX-512 kernels, which every recent server can run but which
OpenBLAS does not pick for AMD CPUs.
"""

import contextlib
import ctypes
import functools
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from threadpoolctl import LibController, ThreadpoolController

KERNELS = "SkylakeX"
_CPU_FLAGS = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


@functools.cache
def pin_kernels() -> bool:
    """Switch every OpenBLAS in this process to the reference kernels.

    Takes effect once, and has to run before the first simulation, with no linear algebra in other threads.

    Returns:
        Whether all of them use these kernels now. False without AVX-512 or with another BLAS: trajectories
        are then reproducible on the same kind of machine, but differ in the last bits from others.
    """
    if not _has_avx512():
        return False
    libraries = _openblas()
    with environment_variable("OPENBLAS_CORETYPE", KERNELS):
        return bool(libraries) and all(list(map(_switch, libraries)))


def pinned_kernels() -> str | None:
    """The kernels that a simulation in this process is pinned to; None if none is."""
    return KERNELS if pin_kernels.cache_info().currsize and pin_kernels() else None


@functools.cache
def use_one_thread() -> None:
    """Keep every OpenBLAS in this process to one thread.

    LIBERO's matrices are small: threads that wait for work take a third of an expert's time.
    """
    for library in _openblas():
        library.set_num_threads(1)


def _openblas() -> list[LibController]:
    import scipy.linalg  # noqa: F401  (numba uses SciPy's OpenBLAS, and loads it late)

    return ThreadpoolController().select(internal_api="openblas").lib_controllers


def _switch(library: LibController) -> bool:
    """Make a loaded OpenBLAS choose its kernels again, if it was built with several."""
    try:
        forget, choose, chosen = (
            library.dynlib.gotoblas_dynamic_quit,
            library.dynlib.gotoblas_dynamic_init,
            library.dynlib.gotoblas_corename,
        )
    except AttributeError:
        return False
    chosen.restype = ctypes.c_char_p
    if chosen() != KERNELS.encode():
        forget()
        choose()
    return chosen() == KERNELS.encode()


def _has_avx512() -> bool:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    lines = list[str]()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return _CPU_FLAGS.issubset(flags)


@contextlib.contextmanager
def environment_variable(name: str, value: str | None) -> Iterator[None]:
    """Set or hide an environment variable inside the context, touching no other: threads may read them."""
    before = os.environ.get(name)
    _set(name, value)
    try:
        yield
    finally:
        _set(name, before)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
