"""Files and folders of users: checked, found, read, locked and flushed to disk. Errors are one line."""

import atexit
import contextlib
import errno
import fcntl
import functools
import json
import os
import shutil
import stat
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from contracts.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

LOCK = ".lock"
"""The locked file of a folder, which is not removed."""
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LFS_POINTER_BYTES = 1024  # which no pointer exceeds
_YOUNG_S = 60.0
"""Age below which a folder without a lock is not stale: its process may not have locked it yet."""
UNREADABLE = (
    *(OSError, ValueError, TypeError, KeyError, EOFError, NotImplementedError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Raised by zipfile and NumPy for damaged files."""


_begun_in: Path | None = None


@contextlib.contextmanager
def relative_to_here() -> Iterator[None]:
    """While entered, `absolute` takes relative paths from the folder that is current now.

    The code of a policy or an environment may change the current folder of the process.
    """
    global _begun_in  # noqa: PLW0603 - as the current folder, one per process
    try:
        before, _begun_in = _begun_in, Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder does not exist any more; change to another (cd)") from None
    try:
        yield
    finally:
        _begun_in = before


def begin_in(folder: Path) -> None:
    """Take relative paths from a folder, in a process that another machine or folder started."""
    global _begun_in  # noqa: PLW0603 - see `relative_to_here`
    _begun_in = folder
    with contextlib.suppress(OSError):  # another machine may not have it
        os.chdir(folder)


def absolute(path: str | Path) -> Path:
    """The path from the root; a relative one is taken from the folder in which the command began."""
    path = Path(path)
    return path if path.is_absolute() else (_begun_in or Path.cwd()) / path


def shown(path: Path) -> str:
    """A path as people read it: relative if it is in the folder in which the command began."""
    here = absolute("")
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


@contextlib.contextmanager
def back_where_begun() -> Iterator[None]:
    """Make the folder in which the command began the current one meanwhile: processes start in it."""
    current = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))  # which may have been removed
    try:
        os.chdir(absolute(""))
        yield
    finally:
        os.fchdir(current)
        os.close(current)


def usable_folder(path: Path, option: str) -> Path:
    """Check that a folder is writable, or can be created; returns its absolute path.

    Raises:
        UsageError: It, or a parent, is a file, a broken link or not writable.
        OSError: A name is too long.
    """
    given, path = path, absolute(path)
    nearest = next(each for each in (path, *path.parents) if each.exists() or each.is_symlink())
    if not nearest.is_dir():
        what = "a broken link" if nearest.is_symlink() else "not a folder"
        raise UsageError(f"{option} {str(given)!r}: {shown(nearest)} is {what}; give another")
    try:
        Path(tempfile.mkdtemp(prefix=".", dir=nearest)).rmdir()
    except OSError as error:
        raise UsageError(f"{option} {str(given)!r}: {error.strerror}; give another") from None
    return path


def usable_file(path: Path, option: str) -> Path:
    """Check that a file can be written; returns its absolute path. Raises as `usable_folder`."""
    if path.is_dir() or not path.name:
        raise UsageError(f"{option} {str(path)!r} is a folder; give a file")
    return usable_folder(path.parent, option) / path.name


def refuse_home(given: str, value: str, *, literal: bool) -> None:
    """Refuse `~name` of an unknown user; any `~` if it would be taken `literal`ly."""
    try:
        home = Path(value).expanduser()
    except RuntimeError:
        raise UsageError(f"{given}: there is no such home; give a whole path, or ./{value}") from None
    if literal:
        raise UsageError(f"{given}: the shell did not expand it; write {str(home)!r}")


def found_near(missing: Path, patterns: Iterable[str]) -> list[Path]:
    """Files that match a pattern in the nearest existing folder; none if that is the whole disk."""
    there = next(folder for folder in (missing, *missing.parents) if folder.is_dir())
    if there == there.parent.resolve():
        return []
    return [file for pattern in patterns for file in there.glob(pattern)]


def cache_folder(variable: str, name: str) -> Path:
    """The folder in an environment variable, else `oxygen-eval/NAME` in the user's cache."""
    users = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return absolute(Path(os.environ.get(variable) or f"{users}/oxygen-eval/{name}").expanduser())


_MISSING = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)
"""Errors of operations that a file system lacks."""


def flush(descriptor: int) -> None:
    """Flush a file to disk, if its file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _MISSING:
            raise


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)


def lock(file: IO[Any], *, wait: bool) -> None:
    """Lock an open file until it is closed; a BlockingIOError if another process has it and nobody waits.

    On a file system without locks, such as some of clusters, a warning says so, once.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in _MISSING:
            raise
        _warn_of_no_locks(Path(file.name).parent.parent)


@functools.cache
def _warn_of_no_locks(folder: Path) -> None:
    sys.stderr.write(
        f"warning: the file system of {shown(folder)} has no locks: run one command at a time in a folder\n"
    )


def regular(path: Path) -> Path:
    """Refuse pipes and devices, which may never end, and missing files by an OSError; returns the path.

    A pointer of Git LFS in place of the file is a UsageError.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EINVAL, "a pipe or a device, not a file", os.fspath(path))
    if stat.S_ISREG(status.st_mode) and len(_LFS_POINTER) <= status.st_size <= _LFS_POINTER_BYTES:
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise UsageError(
                    f"{path} is a pointer of Git LFS, not the file itself: run `git lfs pull` in "
                    f"{path.parent}, or download the file"
                )
    return path


def read_text(path: Path | Traversable) -> str:
    """The text of a UTF-8 file; else a UsageError."""
    try:
        return (regular(path) if isinstance(path, Path) else path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}") from None


def read_json_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object; else a UsageError."""
    return parse_json_object(read_text(path), str(path))


def parse_json_object(text: str | bytes, source: str) -> dict[str, Any]:
    """The value of a JSON text that holds an object; else a UsageError that names the source."""
    content = parse_json(text, source)
    if not isinstance(content, dict):
        raise UsageError(f"{source}: holds {type(content).__name__}, should hold an object")
    return content


def parse_json(text: str | bytes, source: str) -> Any:
    """The value of a JSON text; else a UsageError that names the source."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source}: not JSON: {_reason(error)}") from None


def parse_yaml(text: str, source: str) -> Any:
    """The value of a YAML text with tags of plain values only; else a UsageError that names the source."""
    import yaml  # the policy alone does without it

    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{source}: not YAML: {_reason(error)}") from None


def read_npz(path: Path) -> "dict[str, np.ndarray]":
    """The arrays of an `.npz` file that holds no objects; else a UsageError."""
    import numpy as np

    try:
        with np.load(regular(path), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except UNREADABLE as error:
        raise UsageError(f"{str(path)!r} is not a readable .npz file: {_reason(error)}") from None


def read_npy(path: Path) -> "np.ndarray":
    """The array of an `.npy` file that holds no objects; else a UsageError."""
    import numpy as np

    try:
        array = np.load(regular(path), allow_pickle=False)
    except UNREADABLE as error:
        raise UsageError(f"{str(path)!r} is not a readable .npy file: {_reason(error)}") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{str(path)!r} is not a readable .npy file: it holds several arrays")
    return array


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, created if it is missing, or raise a UsageError; the lock ends with the process.

    A folder that was created and stays empty goes again.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        try:
            lock(file, wait=False)
        except BlockingIOError:
            raise UsageError(
                f"another process is using {folder.name}; wait for it, or stop it first"
            ) from None
        try:
            yield
        finally:
            if is_new and folder.is_dir() and [each.name for each in folder.iterdir()] == [LOCK]:
                shutil.rmtree(folder)


def is_locked(folder: Path) -> bool:
    """Whether a process has the folder; True if that is unknown."""
    try:
        with (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def temporary_folder(prefix: str) -> Path:
    """Create a folder that lasts as long as this process, and remove those left by killed ones."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:  # in use, not ours, or gone
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            opened.callback(os.close, descriptor)
            if time.time() - os.fstat(descriptor).st_mtime > _YOUNG_S:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    with contextlib.suppress(OSError):  # without locks, nobody removes it
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)  # open until the process ends
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
