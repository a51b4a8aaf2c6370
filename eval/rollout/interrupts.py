"""Defers SIGINT and SIGTERM to the end of a query.

Python raises KeyboardInterrupt wherever the signal lands; inside a garbage-collection callback (JAX has one)
it is printed and lost. So the signal is recorded, and acted on where records are complete.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Self

from configs.signals import SIGNALS


class DeferredSignals:
    """While entered, records SIGINT and SIGTERM for `check`. A second signal stops the program at once.

    Attributes:
        received: Whether a signal was received.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: dict[signal.Signals, signal._HANDLER] = {}
        self._descriptor = -1

    @property
    def entered(self) -> bool:
        """Whether signals are recorded now."""
        return bool(self._before)

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
        self._descriptor = signal.set_wakeup_fd(-1)
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        signal.set_wakeup_fd(self._descriptor, warn_on_full_buffer=False)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.received = True
