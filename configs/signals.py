"""SIGINT and SIGTERM: sent to a handler, ending the process at once, or deferred to the end of a query."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def handle_signals(
    handler: Callable[[int, FrameType | None], None],
    *,
    numbers: Sequence[signal.Signals] = SIGNALS,
    wakeup: int = -1,
) -> Iterator[None]:
    """While entered, signals go to a handler, and their numbers to a file descriptor (`wakeup`) unless -1."""
    descriptor = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in handlers.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)


@contextlib.contextmanager
def ends_at_once() -> Iterator[None]:
    """While entered, SIGINT and SIGTERM end the process, with 128 plus their number as the exit code.

    Python runs signal handlers between bytecode instructions only, and compiling a model is one instruction
    of many seconds. So a thread waits for the signals, too. Ignored signals stay ignored.
    """

    def end(number: int, _: FrameType | None) -> None:
        os._exit(128 + number)

    def watch() -> None:
        with waiting:
            while byte := waiting.recv(1):
                if byte[0] in SIGNALS:
                    end(byte[0], None)

    waiting, noting = socket.socketpair()
    noting.setblocking(False)
    threading.Thread(target=watch, name="signals", daemon=True).start()
    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    with noting, handle_signals(end, numbers=handled, wakeup=noting.fileno()):
        yield  # closing `noting` ends the thread


class DeferredSignals:
    """While entered, records SIGINT and SIGTERM for `check`. A second signal stops the program at once.

    Python raises KeyboardInterrupt wherever the signal lands; inside a garbage-collection callback (JAX has
    one) it is printed and lost. So the signal is recorded, and acted on where records are complete.

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
