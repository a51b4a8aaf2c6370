"""A place for caches where the user has no home folder, or cannot write to it, as in many containers."""

import contextlib
import getpass
import os
import stat
import sys
import tempfile
from pathlib import Path

VARIABLES = ("NUMBA_CACHE_DIR", "MPLCONFIGDIR", "OXYGEN_COMPILE_CACHE")
"""Folders that are written even if a cache that can only be read holds the rest."""


def provide_home() -> None:
    """Point this process and its children to a temporary folder if caches cannot be written, and say so.

    Libraries fail without: by `Path.home()`, by the name of a user that no entry describes, and where they
    compile (numba) or draw (Matplotlib).
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = f"user{os.getuid()}"
    home = Path("~")
    with contextlib.suppress(RuntimeError):  # there is none
        home = home.expanduser()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    if caches.is_absolute() and _is_writable(caches):
        return
    folder = _own_folder()
    if not home.is_absolute() or not home.is_dir() or home == Path(home.root):
        os.environ["HOME"] = str(folder)
    if not (caches / "oxygen-eval").is_dir():  # what is there already can be read
        os.environ["XDG_CACHE_HOME"] = str(folder / ".cache")
    for variable in VARIABLES:
        os.environ.setdefault(variable, str(folder / variable.lower()))
    sys.stderr.write(
        f"warning: no home folder can be written, so caches are in {folder}; set HOME or XDG_CACHE_HOME to "
        "keep them\n"
    )


def _is_writable(folder: Path) -> bool:
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _own_folder() -> Path:
    """A temporary folder that later commands of this user find again, and nobody else can write."""
    folder = Path(tempfile.gettempdir(), f"oxygen-eval-{os.getuid()}")
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return folder
    return Path(tempfile.mkdtemp(prefix="oxygen-eval-"))
