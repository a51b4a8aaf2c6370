"""Temporary folders of processes; those of killed processes are removed by the next one."""

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from configs.locks import YOUNG_S


def temporary_folder(prefix: str) -> Path:
    """Create a folder that lasts as long as this process, and remove those left by killed ones.

    Raises:
        OSError: It cannot be created.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another user's, or gone already
            _remove_if_stale(folder)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)  # open until the process ends
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remove_if_stale(folder: Path) -> None:
    """Remove a folder that no process has locked.

    Raises:
        OSError: A process has locked it, or it cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if time.time() - os.fstat(descriptor).st_mtime > YOUNG_S:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)
