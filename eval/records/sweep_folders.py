"""The folder of a sweep: its configuration, its results, and a run for every cell."""

import contextlib
import dataclasses
import datetime as dt
import itertools
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from configs.errors import UsageError
from configs.load import agrees, check
from configs.reading import read_json_object
from configs.sweep import SweepConfig
from eval.records.json_files import write_json
from eval.records.reader import warn_skipped
from eval.records.run_folders import Run, begun_in
from eval.records.schema import RunFolder

_FILE = "sweep.json"


_STATES = {"running": "the sweep is not complete", "errors": "the sweep has episodes that were errors"}


@dataclasses.dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep: `sweep.json`, its plots, and the folders of its runs."""

    path: Path  # the folder
    file: str = _FILE  # the name of the record in it

    @classmethod
    def at(cls, path: Path) -> Self:
        """The sweep in a folder, or the one whose record is the file at `path`."""
        return cls(path.parent, path.name) if path.suffix == ".json" else cls(path)

    @property
    def record_path(self) -> Path:
        """The configuration and, once complete, the results."""
        return self.path / self.file

    def read(self) -> dict[str, Any]:
        """The record as it was last written.

        Raises:
            UsageError: The record is missing, or not a sweep's.
        """
        if not self.record_path.is_file():
            raise UsageError(f"{self.path} is not a sweep: it has no {self.file}")
        record = read_json_object(self.record_path)
        if not {"config", "status"} <= record.keys():
            raise UsageError(f"{self.record_path}: not the record of a sweep")
        return record

    def read_finished(self) -> dict[str, Any]:
        """The record of a complete sweep.

        Raises:
            UsageError: The record is missing, or the sweep is incomplete.
        """
        record = self.read()
        if record["status"] != "complete":
            raise UsageError(
                f"{self.record_path}: {_STATES.get(record['status'], 'unknown')}; complete it with --resume"
            )
        return record

    def config(self) -> SweepConfig:
        """The configuration.

        Raises:
            UsageError: The record cannot be read, or is of another version.
        """
        return check(SweepConfig, self.read()["config"], source=str(self.record_path))

    def write(self, config: SweepConfig, *, status: str, **results: Any) -> None:
        """Replace the record, whole or not at all."""
        content = {"sweep": self.path.name, "status": status, "config": config.model_dump(mode="json")}
        write_json(self.record_path, {**content, **results})

    def runs(self) -> tuple[Run, ...]:
        """The runs of the cells, in their order; none if none has begun."""
        return begun_in(self.path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process.

        Raises:
            UsageError: Another process has locked it.
        """
        with RunFolder(self.path).locked():
            if not self.begun():
                for draft in self.path.glob(".*.partial"):  # of a killed process
                    shutil.rmtree(draft)
            yield

    def begun(self) -> list[RunFolder]:
        """The folders in which a run has begun, readable or not."""
        return [RunFolder(path.parent) for path in self.path.glob("[!.]*/manifest.json")]

    def drop_unless_begun(self) -> None:
        """Remove the folder, unless a run has begun in it."""
        if not self.begun():
            shutil.rmtree(self.path)


def new_sweep(output_dir: Path, config: SweepConfig) -> SweepFolder:
    """A new folder for a sweep, with its configuration."""
    name = f"{dt.datetime.now().astimezone():%Y%m%d-%H%M%S}-sweep"
    for number in itertools.count(1):
        folder = SweepFolder(output_dir / (name if number == 1 else f"{name}-{number}"))
        with contextlib.suppress(FileExistsError):
            folder.path.mkdir(parents=True)
            break
    folder.write(config, status="running")
    return folder


def find_unfinished_sweep(output_dir: Path, given: Mapping[str, Any]) -> SweepFolder:
    """The newest unfinished sweep in a folder that agrees with every option given.

    Raises:
        UsageError: No unfinished sweep has these options.
    """
    complete = None
    for path in sorted(output_dir.glob(f"*/{_FILE}"), reverse=True):
        folder = SweepFolder(path.parent)
        try:
            status, config = folder.read()["status"], folder.config()
        except UsageError as error:
            warn_skipped(folder.path, error)
            continue
        if not agrees(config, given):
            continue
        if status != "complete":
            return folder
        complete = complete or folder
    if complete is not None:
        raise UsageError(
            f"nothing to resume: {complete.path.name} is complete; start another without --resume"
        )
    raise UsageError(
        f"nothing to resume: no unfinished sweep in {output_dir} has these options; start one without "
        "--resume"
    )
