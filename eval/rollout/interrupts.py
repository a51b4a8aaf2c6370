"""Defers SIGINT and SIGTERM to the end of a query.

Python raises KeyboardInterrupt wherever the signal lands; inside a garbage-collection callback (JAX has one)
it is printed and lost. So the signal is recorded, and acted on where records are complete.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Self

from configs.exits import handle_signals


class DeferredSignals:
    """While entered, records SIGINT and SIGTERM for `check`. A second signal stops the program at once.

    Attributes:
        received: Whether a signal was received.
        entered: Whether signals are recorded now.
    """

    def __init__(self) -> None:
        self.received = False
        self.entered = False
        self._handling = contextlib.ExitStack()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received."""
        if self.received:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Signals act as before `__enter__`, for long calls that leave no records, such as compiling."""
        self.check()
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def __enter__(self) -> Self:
        self._handling.enter_context(handle_signals(self._note))
        self.entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self.entered = False
        self._handling.close()

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.received = True
