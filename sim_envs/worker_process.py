"""The worker side of `sim_envs.workers`: runs jobs until the parent process closes the connection."""

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
"""Exit code of a worker whose job raised MemoryError."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class OrphanedError(BaseException):
    """The other end of the connection has exited. Not a failure of the job, hence no `Exception`."""


@runtime_checkable
class WorkerConnection(Protocol):
    """A worker's connection to the process or actor that answers its requests."""

    @property
    def worker(self) -> int:
        """The worker's number, from 0 on. A replacement has the same number."""

    def send(self, message: object) -> None:
        """Send a message that needs no answer. It must not be None."""

    def request(self, message: object) -> Any:
        """Send a message and wait for the answer."""


class PipeConnection:
    """A worker's connection to its parent process.

    Attributes:
        worker: See `WorkerConnection`.
    """

    def __init__(self, worker: int, connection: Connection) -> None:
        self.worker = worker
        self._connection = connection

    def send(self, message: object) -> None:
        """See `WorkerConnection`."""
        try:
            self._connection.send(message)
        except OSError:
            raise OrphanedError from None

    def request(self, message: object) -> Any:
        """See `WorkerConnection`."""
        self.send(message)
        return self.receive()

    def receive(self) -> Any:
        """Wait for the next message."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise OrphanedError from None


@runtime_checkable
class JobRunner(Protocol[JobT_contra, ResultT_co]):
    """Runs jobs in a worker. Has to be picklable: a copy is sent to every worker."""

    def open(
        self, connection: WorkerConnection
    ) -> AbstractContextManager[Callable[[JobT_contra], ResultT_co]]:
        """The function that runs a job. Its exceptions stop all workers; `run_in_workers` raises them."""


class WorkerReady:
    """The worker is ready for jobs."""


@dataclasses.dataclass(frozen=True)
class JobFinished:
    """A job has finished."""

    result: Any


@dataclasses.dataclass(frozen=True)
class WorkerFailed:
    """The runner raised an exception."""

    error: Exception


def run_worker(runner: JobRunner[Any, Any], number: int, connection: Connection, parent: int) -> None:
    """Run jobs from the connection until it is closed: the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    with contextlib.suppress(OrphanedError, KeyboardInterrupt):
        _end_with(parent)
        try:
            parent_connection = PipeConnection(number, connection)
            with runner.open(parent_connection) as run:
                parent_connection.send(WorkerReady())
                while True:
                    parent_connection.send(JobFinished(run(parent_connection.receive())))
        except MemoryError:
            sys.exit(OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - the process boundary: the parent raises it again
            connection.send(WorkerFailed(_sendable(error)))


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends for any reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has ended already
        raise OrphanedError


def _sendable(error: Exception) -> Exception:
    """The error if it can be pickled, else a RuntimeError with the same message."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - unpicklable exceptions fail in many ways
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
