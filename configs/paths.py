"""Checks and finds paths, and flushes them to disk."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from configs.errors import UsageError


def usable_folder(path: Path, option: str) -> Path:
    """Check that a folder is writable, or can be created; returns the path.

    Raises:
        UsageError: It, or a parent, is a file, a broken link or not writable.
        OSError: A name is too long.
    """
    nearest = next(each for each in (path, *path.absolute().parents) if each.exists() or each.is_symlink())
    if not nearest.is_dir():
        what = "a broken link" if nearest.is_symlink() else "not a folder"
        raise UsageError(f"{option} {str(path)!r}: {nearest} is {what}; give another")
    try:
        Path(tempfile.mkdtemp(prefix=".", dir=nearest)).rmdir()
    except OSError as error:
        raise UsageError(f"{option} {str(path)!r}: {error.strerror}; give another") from None
    return path


def usable_file(path: Path, option: str) -> Path:
    """Check that a file can be written; returns the path.

    Raises:
        UsageError: It is a folder, or its folder cannot be used.
    """
    if path.is_dir() or not path.name:
        raise UsageError(f"{option} {str(path)!r} is a folder; give a file")
    usable_folder(path.parent, option)
    return path


def regular(path: Path) -> Path:
    """Refuse pipes and devices, which may never end; returns the path.

    Raises:
        OSError: It is one, or does not exist.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "a pipe or a device, not a file", os.fspath(path))
    return path


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def found_near(missing: Path, patterns: Iterable[str]) -> list[Path]:
    """Files that match a pattern in the nearest existing folder; none if that is the whole disk."""
    there = next(folder for folder in (missing, *missing.parents) if folder.is_dir())
    if there == there.parent.resolve():
        return []
    return [file for pattern in patterns for file in there.glob(pattern)]


def cache_folder(variable: str, name: str) -> Path:
    """The folder in an environment variable, else `oxygen-eval/NAME` in the user's cache."""
    users = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get(variable) or f"{users}/oxygen-eval/{name}").expanduser()


def refuse_home(given: str, value: str, *, literal: bool) -> None:
    """Refuse `~name` of an unknown user; any `~` if it would be taken `literal`ly."""
    try:
        home = Path(value).expanduser()
    except RuntimeError:
        raise UsageError(f"{given}: there is no such home; give a whole path, or ./{value}") from None
    if literal:
        raise UsageError(f"{given}: the shell did not expand it; write {str(home)!r}")
