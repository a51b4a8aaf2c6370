"""Downloads the files of a URL: resumable, verified, and marked once complete."""

import concurrent.futures
import contextlib
import fcntl
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from configs.errors import UsageError
from oxygen.weights.partial_file import Part, write_atomically
from oxygen.weights.store import RemoteFile, Store

AT_ONCE = 4
"""Concurrent downloads."""
TRIES = 5
"""Attempts without progress before a file is given up."""
_FIRST_WAIT_S = 0.5
_PIECE_BYTES = 1 << 20

Advance = Callable[[int], None]
"""Called with the number of new bytes, from any thread; negative if some must be downloaded again."""


def complete(url: str, target: Path) -> None:
    """Download `url` to `target`. Does not use the network if `target` is complete.

    Raises:
        UsageError: The store cannot be reached or has no such file, the disk is full, or a checksum differs.
    """
    if _is_complete(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target):
        if not _is_complete(target):  # no other process has done it
            _Download(url, target).run()


def _marker(target: Path) -> Path:
    return target.with_name(f"{target.name}.complete.json")


def _is_complete(target: Path) -> bool:
    """Whether a download was completed and its files still have their sizes."""
    try:
        sizes = json.loads(_marker(target).read_text())["files"]
        return all((target / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


@contextlib.contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Wait until no other process downloads to `target`."""
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _progress_bar(url: str, total_bytes: int) -> Iterator[Advance]:
    """A progress bar on standard error, if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(url, total=total_bytes)
        yield lambda count: bar.advance(task, count)


class _Download:
    """One download, with a flag that stops all files when one fails."""

    def __init__(self, url: str, target: Path) -> None:
        self._url = url
        self._target = target
        self._store = Store()
        self._stop = threading.Event()

    def run(self) -> None:
        files = self._listing()
        parts = [Part(file=file, path=self._target / file.name) for file in files]
        self._check_disk_space(sum(part.missing for part in parts if not part.path.exists()))
        with _progress_bar(self._url, sum(file.size for file in files)) as advance:
            self._get_all(parts, advance)
        write_atomically(
            _marker(self._target),
            json.dumps({"url": self._url, "files": {file.name: file.size for file in files}}),
        )

    def _listing(self) -> list[RemoteFile]:
        try:
            files = self._store.files(self._url)
        except FileNotFoundError:
            raise UsageError(f"there is nothing at {self._url}") from None
        except self._store.failures as error:
            raise self._unreachable(error) from None
        if not files:
            raise UsageError(f"there is nothing at {self._url}, or nothing that can be listed")
        return files

    def _unreachable(self, error: Exception) -> UsageError:
        return UsageError(
            f"{self._url} cannot be reached ({type(error).__name__}: {str(error)[:200]}), and {self._target} "
            f"is incomplete. Connect and try again (the download resumes), or give a folder"
        )

    def _check_disk_space(self, missing: int) -> None:
        free = shutil.disk_usage(self._target.parent).free
        if missing > free:
            raise UsageError(
                f"{self._url} needs {missing / 1e9:.1f} GB more and {self._target.parent} has "
                f"{free / 1e9:.1f} GB: make room, or set OXYGEN_CACHE to a folder with more"
            )

    def _get_all(self, parts: list[Part], advance: Advance) -> None:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            pending = [pool.submit(self._get, part, advance) for part in parts]
            try:
                for done in concurrent.futures.as_completed(pending):
                    done.result()
            except BaseException:  # also Ctrl-C; partial files stay for the next attempt
                self._stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _get(self, part: Part, advance: Advance) -> None:
        if part.is_whole():
            advance(part.file.size)
            return
        advance(part.begun)
        failures = 0
        while part.missing and not self._stop.is_set():
            before = part.missing
            try:
                self._append(part, advance)
            except FileNotFoundError:
                raise UsageError(f"{part.file.url} is listed, but does not exist") from None
            except self._store.failures as error:
                failures = 1 if part.missing < before else failures + 1
                if failures == TRIES:
                    raise self._unreachable(error) from None
                self._stop.wait(_FIRST_WAIT_S * 2 ** (failures - 1))
        if not part.missing:
            part.finish()

    def _append(self, part: Part, advance: Advance) -> None:
        begun = part.begun
        stream, start = self._store.stream(part.file, begun)
        advance(start - begun)
        with stream, part.written_from(start) as file:
            while (piece := stream.read(_PIECE_BYTES)) and not self._stop.is_set():
                file.write(piece)
                advance(len(piece))
        if part.missing and not self._stop.is_set():
            raise ConnectionError(f"{part.file.url} ended {part.missing} bytes early")
