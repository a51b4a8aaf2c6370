"""Files of a run: the manifest, one line per episode, one query log per episode."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import Field, StrictInt
from typing_extensions import TypedDict

from configs.errors import check
from configs.paths import read_json_object
from contracts.clock import parse_clock
from contracts.env_seed import BY_EPISODE
from contracts.episode import EpisodeKey, EpisodeResult
from contracts.errors import UsageError
from contracts.redaction import redact
from eval.records.json_files import append_json_line, read_json_lines, write_json

SCHEMA_VERSION = 2
"""Version of the files in a run's folder. Runs of another version are refused."""


class _Planned(TypedDict, total=False):
    task_ids: list[StrictInt]
    init_ids: list[StrictInt]
    seeds: list[StrictInt]
    num_trials_per_task: StrictInt | None


class _Attempt(TypedDict):
    started: str
    finished: str | None


class _Manifest(TypedDict, total=False):
    """The fields of a manifest that are read without further checks."""

    config: _Planned
    protocol: dict[str, dict[str, Any]] | None
    policy_inputs: dict[str, Any]
    variants: list[str]
    started: str
    attempts: Annotated[list[_Attempt], Field(min_length=1)]


class _Fields(dict[str, Any]):
    """The fields of a record; a missing one is a UsageError."""

    def __init__(self, content: Mapping[str, Any], *, source: str) -> None:
        super().__init__(content)
        self._source = source

    def __missing__(self, name: str) -> NoReturn:
        raise UsageError(f"{self._source}: lacks {name!r}")


def current_options(recorded: Any) -> Any:
    """The configuration in a record of any version, with the options of today.

    Those that lack `env_seed` are of runs before it, which were `fixed`; `seeds` was one `seed`;
    `replan_steps` 1 was called `asap`, and profiles had other names.
    """
    if not isinstance(recorded, Mapping):
        return recorded
    current = {"env_seed": str(BY_EPISODE), **recorded}
    if "seed" in current:
        current["seeds"] = [current.pop("seed")]
    return _renamed(current)


def _renamed(value: Any, option: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _renamed(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, option) for each in value]
    if option == "clock" and isinstance(value, str) and value.startswith("profile:"):
        return str(parse_clock(value))
    return 1 if (option, value) == ("replan_steps", "asap") else value


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder `runs/<run_id>/` and its files."""

    path: Path

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def manifest_path(self) -> Path:
        """Configuration, versions, hardware."""
        return self.path / "manifest.json"

    @property
    def episodes_path(self) -> Path:
        """One line per episode."""
        return self.path / "episodes.jsonl"

    @property
    def results_path(self) -> Path:
        """Success rates and latencies."""
        return self.path / "results.json"

    def queries_path(self, key: EpisodeKey) -> Path:
        """One line per query of one episode."""
        return self.path / "queries" / f"{key}.jsonl"

    def picture_path(self, key: EpisodeKey) -> Path:
        """The latest camera picture of an episode; there only while it runs."""
        return self.path / "queries" / f"{key}.jpg"

    def video_stem(self, key: EpisodeKey) -> Path:
        """The video of one episode, without what follows its name: `_success.mp4`."""
        name = f"task{key.task_id:02d}_ep{key.init_id:03d}_seed{key.seed}"
        return self.path / "videos" / key.suite / name

    def read_manifest(self) -> dict[str, Any]:
        """The manifest as it was last written; an unreadable one, or a missing field, is a UsageError."""
        if not self.manifest_path.exists():
            raise UsageError(f"{self.path} is not a run: it has no {self.manifest_path.name}")
        content = read_json_object(self.manifest_path)
        version = content.get("schema_version", 1)
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{self.path} has records of schema version {version}, this program reads {SCHEMA_VERSION}; "
                "run it again"
            )
        if "config" in content:
            content["config"] = current_options(content["config"])
        check(_Manifest, content, source=str(self.manifest_path))
        return _Fields(redact(content), source=str(self.manifest_path))  # of older versions

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest atomically."""
        write_json(self.manifest_path, {"schema_version": SCHEMA_VERSION, **manifest})

    def append(self, result: EpisodeResult) -> None:
        """Append one episode; it is on disk when this returns."""
        append_json_line(self.episodes_path, dataclasses.asdict(result))

    def episodes(self) -> dict[EpisodeKey, EpisodeResult]:
        """All recorded episodes; a damaged line is a UsageError.

        The last record of an episode counts (a retry after an error).
        """
        results: dict[EpisodeKey, EpisodeResult] = {}
        for number, record in enumerate(read_json_lines(self.episodes_path), start=1):
            if "held_steps" in record:  # before it was called idle
                record["idle_steps"] = record.pop("held_steps")
            result = check(EpisodeResult, record, source=f"{self.episodes_path}, line {number}")
            results[result.key] = result
        return results
