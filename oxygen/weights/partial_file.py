"""A partially downloaded file, resumable and verified by version, size and checksum."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from configs.errors import UsageError
from oxygen.weights.store import RemoteFile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One file of a download.

    Attributes:
        file: The remote file.
        path: The complete, verified file; while downloading, `path.partial`.
    """

    file: RemoteFile
    path: Path

    @property
    def _partial(self) -> Path:
        return self.path.with_name(f"{self.path.name}.partial")

    @property
    def _version(self) -> Path:
        return self.path.with_name(f"{self.path.name}.partial.version")

    @property
    def begun(self) -> int:
        """Bytes downloaded of the store's current version."""
        try:
            same = self._version.read_text() == self.file.version
            return min(self._partial.stat().st_size, self.file.size) if same else 0
        except OSError:
            return 0

    @property
    def missing(self) -> int:
        """Bytes left to download."""
        return self.file.size - self.begun

    def is_whole(self) -> bool:
        """Whether the file is complete."""
        if not self.path.is_file() or self.path.stat().st_size != self.file.size:
            return False
        return self._sum_if_wrong(self.path) is None

    @contextlib.contextmanager
    def written_from(self, start: int) -> Iterator[IO[bytes]]:
        """Open the partial file for appending, truncated to `start` bytes."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._version, self.file.version)
        with self._partial.open("ab") as file:
            file.truncate(start)
            yield file

    def finish(self) -> None:
        """Verify the partial file and rename it.

        Raises:
            UsageError: Its checksum differs from the store's. It is then removed.
        """
        if not self.file.size:
            with self.written_from(0):
                pass
        wrong = self._sum_if_wrong(self._partial)
        if wrong is not None:
            self._partial.unlink()
            raise UsageError(
                f"{self.file.url} was damaged in transit ({wrong}) and has been removed; try again"
            )
        self._partial.replace(self.path)
        self._version.unlink()

    def _sum_if_wrong(self, path: Path) -> str | None:
        stated = self.file.checksum
        found = stated.of(path) if stated else None
        if stated is None or found is None or found == stated.value:
            return None
        return f"its {stated.kind} is {found} instead of {stated.value}"


def write_atomically(path: Path, text: str) -> None:
    """Write a small file atomically."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_text(text)
    draft.replace(path)
