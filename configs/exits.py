"""How commands end: exit codes, errors as one line, and SIGINT and SIGTERM: handled, at once, or deferred."""

import argparse
import contextlib
import errno
import faulthandler
import io
import os
import re
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn, Self, TypeGuard

from configs.home import provide_home
from contracts.errors import UsageError, install_command

FAILED, INPUT_ERROR, INTERRUPTED = 1, 2, 130
"""Exit codes if the output pipe is closed, for bad input, and after Ctrl-C (128 + SIGINT, as in shells)."""

_READS_ENVIRONMENT = ("jax._src.config", "jax._src.xla_bridge")
"""Modules of JAX that raise if one of its environment variables is invalid."""
_EXTRA_OF = {
    "optax": "train",
    "pyarrow": "train",
    "ray": "ray",
    "tensorboardX": "tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}
"""Optional package to the extra that installs it."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise the message as a UsageError."""
        raise UsageError(f"{message}. See --help.")


_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


def how_ended(code: int | None, *, crash: str = "a library crashed") -> str:
    """How a process ended, by its exit code: "exited with code 3", "was killed by SIGSEGV (`crash`)"."""
    if code is None or code >= 0:
        return f"exited with code {code}"
    hints = {signal.SIGKILL: " (perhaps out of memory)", **dict.fromkeys(_CRASHES, f" ({crash})")}
    try:
        number = signal.Signals(-code)
    except ValueError:  # a real-time signal
        return f"was killed by signal {-code}"
    return f"was killed by {number.name}{hints.get(number, '')}"


def report_crashes() -> None:
    """Have a fatal signal in this process name itself, and the line of Python, before the process dies."""
    if not faulthandler.is_enabled():
        faulthandler.enable(file=2, all_threads=False)


def exit_code_of(command: Callable[[], int | None]) -> int:
    """Run a command: its exit code, 0 if it returns None; 2 for bad input (one line), 130 for Ctrl-C.

    Files that cannot be opened, created or written are bad input, too, as are JAX's environment variables if
    it does not start. SIGINT and SIGTERM end the process at once until the command handles them. Characters
    that the terminal's encoding lacks are printed as `?`.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # stderr escapes what it cannot encode
        sys.stdout.reconfigure(errors="replace")
    report_crashes()
    try:
        with ends_at_once():
            provide_home()
            return command() or 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the last flush fails, too
        return FAILED
    except (AssertionError, ModuleNotFoundError, OSError, RuntimeError, ValueError) as error:
        usage_error = _as_usage_error(error)
        if usage_error is None:
            raise
        sys.stderr.write(f"error: {usage_error}\n")
        return INPUT_ERROR


def _as_usage_error(error: Exception) -> UsageError | None:
    """The error as a usage error; None if it is a bug."""
    if isinstance(error, UsageError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRA_OF:
        command = install_command(_EXTRA_OF[error.name])
        return UsageError(f"this needs the package {error.name}, which is not installed: run {command}")
    if is_disk_full(error):
        return UsageError(
            f"{error.filename or 'writing'}: {error.strerror}; free some, and run it again (--resume)"
        )
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):
        return UsageError("no folder for temporary files can be written: set TMPDIR to one that can")
    if isinstance(error, OSError) and error.filename is not None:
        reason = error.strerror or type(error).__name__
        return UsageError(f"cannot use {str(error.filename)!r}: {reason}; give another")
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return jax_does_not_start(error) if frame.f_globals["__name__"] in _READS_ENVIRONMENT else None


def is_disk_full(error: BaseException) -> TypeGuard[OSError]:
    """Whether there was no space to write a file."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def jax_does_not_start(error: Exception) -> UsageError:
    """JAX's error, with the variables that it names; none if a platform of `JAX_PLATFORMS` is missing."""
    platforms = os.environ.get("JAX_PLATFORMS")
    if platforms and (isinstance(error, AssertionError) or not str(error)):
        return UsageError(
            f"JAX does not start: JAX_PLATFORMS={platforms}, but that device or its plugin is missing: "
            "unset JAX_PLATFORMS, or run uv pip install 'jax[cuda13]' for an NVIDIA GPU"
        )
    given = {name: value for name, value in os.environ.items() if name.startswith("JAX_") and value}
    said = str(error).lower()  # JAX names a variable, or its flag in small letters, or its value, or nothing
    names = [name for name in given if name.lower() in said]
    words = {name: value.lower() for name, value in given.items() if not value.isdecimal()}
    by_value = [name for name, value in words.items() if re.search(rf"\b{re.escape(value)}\b", said)]
    names = names or by_value or list(given)
    reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    which = " and ".join(f"{name}={given[name]}" for name in names) or "its environment variables"
    return UsageError(f"JAX does not start ({reason}): correct or unset {which}")


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def handle_signals(
    handler: Callable[[int, FrameType | None], None],
    *,
    numbers: Sequence[signal.Signals] = _SIGNALS,
    wakeup: int = -1,
) -> Iterator[None]:
    """While entered, signals go to a handler, and their numbers to a file descriptor (`wakeup`) unless -1.

    In a thread other than the main one, which alone may handle signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    descriptor = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in handlers.items():
            if before is not None:  # of a program that embeds Python
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
                if byte[0] in _SIGNALS:
                    end(byte[0], None)

    waiting, noting = socket.socketpair()
    noting.setblocking(False)
    threading.Thread(target=watch, name="signals", daemon=True).start()
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    with noting, handle_signals(end, numbers=handled, wakeup=noting.fileno()):
        yield  # closing `noting` ends the thread


class DeferredSignals:
    """While entered, records SIGINT and SIGTERM for `check`. A second signal stops the program at once.

    Python raises KeyboardInterrupt wherever the signal lands; inside a garbage-collection callback (JAX has
    one) it is printed and lost. So the signal is recorded, and acted on where records are complete.
    """

    def __init__(self) -> None:
        self.received = False
        self.entered = False  # whether signals are recorded now
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
