"""Locks a folder for one process."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from configs.errors import UsageError

LOCK = ".lock"
"""The locked file, which is not removed."""
YOUNG_S = 60.0
"""Age below which a folder without a lock is not stale: its process may not have locked it yet."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, created if it is missing; the lock ends with the process.

    Raises:
        UsageError: Another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process is using {folder.name}; wait for it, or stop it first"
            ) from None
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process has the folder; True if that is unknown."""
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
