"""Jobs of worker processes that go wrong. Imports little, as each worker does so anew."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sim_envs.workers import WorkerConnection

SATED, STARVED_ONCE, STARVED, HANGING = "sated", "starved once", "starved", "hanging"
KILLED = {"oom": signal.SIGKILL, "crash": signal.SIGSEGV}


@contextlib.contextmanager
def hungry(mark: Path, connection: WorkerConnection) -> Iterator[Callable[[str], int]]:
    """Runs jobs of which some run out of memory or hang."""

    def run(job: str) -> int:
        if job == HANGING:
            time.sleep(60)
        if job in KILLED:
            os.kill(os.getpid(), KILLED[job])
        if job == STARVED or (job == STARVED_ONCE and not mark.exists()):
            mark.touch()
            raise MemoryError
        return connection.worker

    yield run


@contextlib.contextmanager
def dying(marks: Path, losses: int, connection: WorkerConnection) -> Iterator[Callable[[int], int]]:
    """Dies some times before it is ready, leaving a mark each time."""
    before = len(list(marks.iterdir()))
    if before < losses:
        (marks / str(before)).touch()
        os._exit(3)
    yield lambda job: job


@contextlib.contextmanager
def device(connection: WorkerConnection) -> Iterator[Callable[[int], tuple[int, str | None]]]:
    yield lambda _: (connection.worker, os.environ.get("MUJOCO_EGL_DEVICE_ID"))


@contextlib.contextmanager
def failing_late(mark: Path, connection: WorkerConnection) -> Iterator[Callable[[int], None]]:
    """Fails only when it has been told to end."""

    def run(_: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        mark.touch()
        signal.sigwait({signal.SIGTERM})
        raise ValueError("too late")

    yield run
