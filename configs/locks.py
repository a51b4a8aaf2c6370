"""Locks folders for one process; temporary folders, removed by the next process after a kill."""

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from configs.errors import UsageError

LOCK = ".lock"
"""The locked file, which is not removed."""
_YOUNG_S = 60.0
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


def temporary_folder(prefix: str) -> Path:
    """Create a folder that lasts as long as this process, and remove those left by killed ones.

    Raises:
        OSError: It cannot be created.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:  # in use, not ours, or gone
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            opened.callback(os.close, descriptor)
            if time.time() - os.fstat(descriptor).st_mtime > _YOUNG_S:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)  # open until the process ends
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
