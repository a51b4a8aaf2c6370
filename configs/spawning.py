"""Processes that are spawned without importing the user's script."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """A process that starts here does not import the user's script, which may have no `__main__` guard."""
    main = vars(sys.modules["__main__"])
    hidden = {name: main.get(name) for name in ("__spec__", "__file__") if name in main}
    main["__spec__"] = None
    main.pop("__file__", None)
    try:
        yield
    finally:
        main.update(hidden)
