"""Follows a run while it is written: recorded episodes, running episodes, and its status."""

import contextlib
import dataclasses
import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from configs.errors import UsageError
from configs.locks import LOCK
from configs.paths import regular
from configs.validation import invalid
from eval.records.json_files import read_json_line
from eval.records.reader import RunIdentity, read_identity
from eval.records.schema import EpisodeResult, RunFolder
from sim_envs.world import EpisodeKey

_EPISODE = TypeAdapter(EpisodeResult)
_TIME = TypeAdapter(AwareDatetime)
_PICTURE = re.compile(r"([^/\0]+)\.(\d{1,18})\.(\d{1,18})\.(\d{1,18})\.jpg")
_TAIL_BYTES = 2**16
"""Bytes of a growing query log that are read."""
_SILENT_S, _PROBED_EVERY_S = 10.0, 5.0
"""Seconds without changes after which the run's lock is probed, and between two probes."""

STOPPED = "stopped"
"""Status of a run whose process ended without updating its manifest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayingEpisode:
    """A running episode.

    Attributes:
        pictured: Time of its latest picture, Unix time in nanoseconds.
        query: The last query in its log; empty if there is none yet.
    """

    key: EpisodeKey
    pictured: int
    query: Mapping[str, Any]


class FollowedRun:
    """A run's folder; `refresh` parses what was added to its files.

    Attributes:
        folder: The folder.
        identity: From the manifest.
        manifest: The whole manifest.
        status: That of the manifest, or `STOPPED`.
        episodes: The last record of each episode, in the order of these records.
        problems: One line on each file or line that cannot be read.
        playing: The running episodes.
    """

    def __init__(self, path: Path) -> None:
        """Read a run's folder.

        Raises:
            UsageError: It is not a run.
        """
        self.folder = RunFolder(path)
        self.identity: RunIdentity
        self.manifest: Mapping[str, Any]
        self.status = ""
        self.episodes: dict[EpisodeKey, EpisodeResult] = {}
        self.problems: tuple[str, ...] = ()
        self.playing: tuple[PlayingEpisode, ...] = ()
        self._damaged_lines: list[str] = []
        self._lines = self._offset = 0
        self._versions: dict[str, object] = {}
        self._changed = self._probed = -_SILENT_S
        self._is_stopped = False
        self._read_manifest()
        self.refresh()
        self._changed = -_SILENT_S  # its process may have ended long ago
        self._read_status()

    def refresh(self) -> bool:
        """Read what was added. Failures become `problems`.

        Returns:
            Whether anything has changed.
        """
        before = self.status, self.problems, self.playing, dict(self._versions)
        problems = []
        for name, read in (
            (self.folder.manifest_path.name, self._read_manifest),
            (self.folder.episodes_path.name, self._read_episodes),
        ):
            try:
                version = _version(self.folder.path, name)
                if version != self._versions.get(name):
                    read()
                    self._versions[name] = version
                    self._changed = time.monotonic()
            except (OSError, UsageError) as error:
                problems.append(str(error))
        self.problems = (*problems, *self._damaged_lines)
        self._read_playing()
        self._read_status()
        return before != (self.status, self.problems, self.playing, self._versions)

    @property
    def recorded_at(self) -> float:
        """Time of the last record, Unix time; 0 without records."""
        try:
            return self.folder.episodes_path.stat().st_mtime
        except OSError:
            return 0.0

    def _read_manifest(self) -> None:
        _require_inside(self.folder.path, self.folder.manifest_path.name)
        self.identity, self.manifest = read_identity(self.folder), self.folder.read_manifest()

    def _read_episodes(self) -> None:
        path = self.folder.episodes_path
        if not os.path.lexists(path):
            return
        _require_inside(self.folder.path, path.name)
        with regular(path).open("rb") as lines:
            if os.fstat(lines.fileno()).st_size < self._offset:  # another file
                self._lines = self._offset = 0
                self.episodes, self._damaged_lines = {}, []
            lines.seek(self._offset)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._lines += 1
                self._add(line, f"{path.name}, line {self._lines}")

    def _add(self, line: bytes, source: str) -> None:
        try:
            result = _EPISODE.validate_python(read_json_line(line, source))
        except UsageError as error:
            self._damaged_lines.append(str(error))
        except ValidationError as error:
            self._damaged_lines.append(str(invalid(error, source)))
        else:
            self.episodes.pop(result.key, None)
            self.episodes[result.key] = result

    def _read_playing(self) -> None:
        """Find the running episodes by their pictures, without older ones of a killed attempt."""
        found = []
        if self.identity.status == "running":
            since = 1e9 * attempt_began(self.manifest)
            for key, pictured in sorted(self._pictures()):
                if pictured >= since:
                    query = self._last_query(key)
                    found.append(PlayingEpisode(key=key, pictured=pictured, query=query))
        if tuple(found) != self.playing:
            self._changed = time.monotonic()
        self.playing = tuple(found)

    def _pictures(self) -> Iterator[tuple[EpisodeKey, int]]:
        queries = inside(self.folder.path, "queries")
        if queries is None or not queries.is_dir():
            return
        with os.scandir(queries) as entries:
            for entry in entries:
                name = _PICTURE.fullmatch(entry.name)
                if name and entry.is_file(follow_symlinks=False):
                    suite, task_id, init_id, seed = name.groups()
                    key = EpisodeKey(suite=suite, task_id=int(task_id), init_id=int(init_id), seed=int(seed))
                    with contextlib.suppress(FileNotFoundError):  # the episode has ended
                        yield key, entry.stat(follow_symlinks=False).st_mtime_ns

    def _last_query(self, key: EpisodeKey) -> Mapping[str, Any]:
        path = inside(self.folder.path, f"queries/{self.folder.queries_path(key).name}")
        if path is None or not path.is_file():
            return {}
        with contextlib.suppress(OSError, UsageError), path.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
            whole = log.read(_TAIL_BYTES).rpartition(b"\n")[0]
            return read_json_line(whole.rpartition(b"\n")[2], path.name)
        return {}

    def _read_status(self) -> None:
        now = time.monotonic()
        if self.identity.status != "running" or now - self._changed < _SILENT_S:
            self._is_stopped = False
        elif now - self._probed >= _PROBED_EVERY_S:
            self._probed = now
            self._is_stopped = not _is_locked(self.folder)
        self.status = STOPPED if self._is_stopped else self.identity.status
        if self._is_stopped:
            self.playing = ()


def inside(folder: Path, name: str) -> Path | None:
    """A path in a folder, links resolved; None if it does not exist or is outside the folder."""
    root = folder.resolve()
    try:
        path = (root / name).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return None
    return path if path.is_relative_to(root) else None


def _require_inside(folder: Path, name: str) -> None:
    path = inside(folder, name)
    if os.path.lexists(folder / name) and (path is None or not path.is_file()):
        raise UsageError(f"{folder / name} is not a file of the run's folder, or links out of it: not read")


def _version(folder: Path, name: str) -> object:
    """Inode, size and modification time of a file; None if it does not exist."""
    try:
        status = (folder / name).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def attempt_began(manifest: Mapping[str, Any]) -> float:
    """Start of the last attempt, Unix time; 0 if unknown."""
    attempts = manifest.get("attempts") or [manifest]
    try:
        return _TIME.validate_python(attempts[-1].get("started")).timestamp()
    except ValidationError:
        return 0.0


def _is_locked(folder: RunFolder) -> bool:
    """Whether a process holds the run's lock; True if that is unknown."""
    try:
        with (folder.path / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
