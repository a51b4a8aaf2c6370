"""Lines on standard error about stages that take long: what is done, at once, and how long it took."""

import contextlib
import sys
import time
from collections.abc import Iterator


@contextlib.contextmanager
def stage(what: str) -> Iterator[None]:
    """Print what is done before it is done, and complete the line with the elapsed time."""
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
