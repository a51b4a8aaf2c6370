"""Announces slow stages on standard error, with their elapsed time."""

import contextlib
import sys
import time
from collections.abc import Iterator


@contextlib.contextmanager
def stage(what: str) -> Iterator[None]:
    """Print a description first, and complete the line with the elapsed time."""
    began = time.perf_counter()
    sys.stderr.write(f"{what} ... ")
    sys.stderr.flush()
    try:
        yield
    except BaseException:
        sys.stderr.write("\n")  # an error has a line of its own
        raise
    sys.stderr.write(f"{time.perf_counter() - began:.1f} s\n")
    sys.stderr.flush()
