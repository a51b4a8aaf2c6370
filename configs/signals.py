"""SIGINT and SIGTERM while a command starts: the process ends at once, without a traceback."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def ends_at_once() -> Iterator[None]:
    """While entered, SIGINT and SIGTERM end the process, with 128 plus their number as the exit code.

    Python runs signal handlers between bytecode instructions only, and compiling a model is one instruction
    of many seconds. So a thread waits for the signals, too. Code that handles them itself for a while must
    also replace the wake-up descriptor (`eval.rollout.interrupts`).
    """
    waiting, noting = socket.socketpair()
    noting.setblocking(False)
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, _end) for number in heeded}
    descriptor = signal.set_wakeup_fd(noting.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(waiting,), name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        noting.close()  # which ends the thread


def _watch(waiting: socket.socket) -> None:
    with waiting:
        while byte := waiting.recv(1):
            if byte[0] in SIGNALS:
                _end(byte[0], None)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)
