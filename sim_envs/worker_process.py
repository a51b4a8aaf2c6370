"""What runs in a worker process: a player that plays the jobs that come, and ends with whoever started it."""

import contextlib
import ctypes
import dataclasses
import errno
import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar, runtime_checkable

JobT_contra = TypeVar("JobT_contra", contravariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)

OUT_OF_MEMORY = errno.ENOMEM
"""Exit code of a worker whose player let a MemoryError through: another one starts with its memory free."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class OrphanedError(BaseException):
    """Whoever answers this worker's questions is gone. No failure of the job, so no `Exception`."""


@runtime_checkable
class Line(Protocol):
    """A worker's connection to what answers its questions."""

    @property
    def worker(self) -> int:
        """The worker's number, from 0 on. One that replaces another has the same."""

    def tell(self, message: object) -> None:
        """Send something that nobody answers. No message may be None."""

    def ask(self, message: object) -> Any:
        """Send something, and wait for the answer."""


class PipeLine:
    """A worker's connection to the process that started it.

    Attributes:
        worker: See `Line`.
    """

    def __init__(self, worker: int, connection: Connection) -> None:
        self.worker = worker
        self._connection = connection

    def tell(self, message: object) -> None:
        """See `Line`."""
        try:
            self._connection.send(message)
        except OSError:
            raise OrphanedError from None

    def ask(self, message: object) -> Any:
        """See `Line`."""
        self.tell(message)
        return self.hear()

    def hear(self) -> Any:
        """Wait for what comes next."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise OrphanedError from None


@runtime_checkable
class Player(Protocol[JobT_contra, ResultT_co]):
    """What a worker does. It is sent to every worker."""

    def opened(self, line: Line) -> AbstractContextManager[Callable[[JobT_contra], ResultT_co]]:
        """Plays jobs. What it raises ends all workers, and is raised by `play_in_workers`."""


class Ready:
    """The player is ready for jobs."""


@dataclasses.dataclass(frozen=True)
class Finished:
    """A job has been played."""

    result: Any


@dataclasses.dataclass(frozen=True)
class Raised:
    """The player let an exception through."""

    error: Exception


def run_worker(player: Player[Any, Any], number: int, connection: Connection, parent: int) -> None:
    """The program of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that started us
    with contextlib.suppress(OrphanedError, KeyboardInterrupt):
        _end_with(parent)
        try:
            serve(player, PipeLine(number, connection))
        except MemoryError:
            sys.exit(OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - the boundary of the process: it is raised again in the first
            connection.send(Raised(_sendable(error)))


def serve(player: Player[Any, Any], line: PipeLine) -> None:
    """The other side of `play_in_workers`: play the jobs that come, until the line is cut."""
    with player.opened(line) as play:
        line.tell(Ready())
        while True:
            line.tell(Finished(play(line.hear())))


def _end_with(parent: int) -> None:
    """Have this process killed when the one that started it ends, whatever that dies of and this one does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was faster
        raise OrphanedError


def _sendable(error: Exception) -> Exception:
    """The error itself if it survives the journey, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - whatever keeps somebody's class from being sent
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
