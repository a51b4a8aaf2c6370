"""The `RunLogger` interface, and the description of a run in its log."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from configs.hashing import hash_of
from eval.records.run_folders import Run

PROJECT = "oxygen-eval"
"""Project of logs that are kept by project, unless the logger's environment variable names another."""
_DESCRIBED = (
    *("command", "mode", "policy", "weights_sha256", "assets", "config", "protocol_hash"),
    *("git", "versions", "hardware"),
)
"""Fields of a manifest that are logged."""


class RunLogger(Protocol):
    """Logs one run. Any method may raise; the evaluation goes on without the log.

    Attributes:
        where: Command or address that shows the log.
    """

    where: str

    def log(self, values: Mapping[str, float], videos: Mapping[str, Path], *, step: int) -> None:
        """Log metrics and videos after an episode.

        Args:
            values: Metrics by name, in groups: `success/rate`.
            videos: MP4 files by name.
            step: Number of the run's episodes that have ended. Repeats where errors are retried.
        """

    def close(self) -> None:
        """Flush and close the log."""


LoggerFactory = Callable[[Run, str], RunLogger]
"""Opens the log of a run that has begun, in a group of runs; continues that of a resumed run."""


def describe(run: Run) -> dict[str, Any]:
    """The fields of a run's manifest that are logged."""
    manifest = run.folder.read_manifest()
    return {name: manifest.get(name) for name in _DESCRIBED}


def log_id(run: Run) -> str:
    """The id of a run's log: the same when it is resumed, another for runs that began in the same second."""
    manifest = run.folder.read_manifest()
    return f"{run.folder.run_id}-{hash_of([manifest['started'], manifest['config']])[:8]}"
