"""The store of demonstrations: one file per episode, written atomically."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int64
from pydantic import BeforeValidator

from configs.errors import check
from configs.paths import parse_json_object, read_json_object
from configs.training import CollectConfig
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from eval.records.json_files import write_json
from eval.records.protocol import NO_ASSETS
from eval.rollout.plan import TaskPlan
from oxygen.training import layout
from oxygen.training.demonstrations import readable_table

Histogram = Int64[np.ndarray, "channel 256"]
"""Counts of the 256 levels in each channel of a camera's images."""


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class DemonstrationKey:
    """The identity of a demonstration. Datasets are ordered by it."""

    suite: str  # name of the task suite
    task_id: int  # index of the task in it
    init_id: int  # index of the stored initial state, or the number of a sampled one
    seed: int  # seed of the environment and of all noise
    assets: str  # name of the asset set
    digest: str  # digest of its files
    noise: float  # noise of the expert, 0 to 1

    def __str__(self) -> str:
        episode = EpisodeKey(suite=self.suite, task_id=self.task_id, init_id=self.init_id, seed=self.seed)
        return f"{episode}.{self.digest}.{self.noise:g}"

    @classmethod
    def of(cls, episode: EpisodeKey, task: TaskPlan, config: CollectConfig) -> Self:
        """The demonstration of an episode that is played."""
        assets = task.suite.assets or NO_ASSETS
        shared = {"assets": assets.name, "digest": assets.digest, "noise": config.expert_noise}
        return cls(**dataclasses.asdict(episode), **shared)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredEpisode:
    """A demonstration on disk: its table at `path`, and the histogram of each camera's images.

    If it is not `solved`, none of its actions is a training target.
    """

    __pydantic_config__ = {"arbitrary_types_allowed": True}  # noqa: RUF012 - as pydantic wants it

    key: DemonstrationKey
    solved: bool
    language: str
    histograms: dict[str, Annotated[Histogram, BeforeValidator(np.asarray)]]
    path: Path

    def rows(self) -> pa.Table:
        """A row per frame, without the columns that depend on the position in the dataset."""
        return pq.read_table(self.path).replace_schema_metadata(None)


@dataclasses.dataclass(frozen=True)
class EpisodeStore:
    """The folder `.episodes` of a dataset. Episodes in it are not played again."""

    dataset: Path

    @property
    def folder(self) -> Path:
        """The folder of the episodes."""
        return self.dataset / ".episodes"

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse a dataset to which demonstrations with these options may not be added. Writes nothing.

        They are all that its episodes share, conventions, weights and the protocol of each suite included.
        """
        if self._options_path.exists():
            before = read_json_object(self._options_path)
            if "policy" not in before:
                raise UsageError(f"{self._options_path}: lacks 'policy'; give another folder with --output")
            for name, value in options.items():
                if before.get(name, value) != value:
                    raise UsageError(
                        f"{str(self.dataset)!r} was begun with {name} {before[name]!r}, not {value!r}: give "
                        "the same, or another folder with --output"
                    )
        elif (self.dataset / layout.INFO).exists():
            raise UsageError(
                f"{str(self.dataset)!r} holds a dataset without its {self.folder.name}, which cannot "
                "be extended: give another folder with --output"
            )
        elif foreign := sorted(each.name for each in self.dataset.glob("[!.]*")):
            raise UsageError(
                f"{str(self.dataset)!r} holds {foreign[0]!r} but no dataset; give another folder "
                "with --output"
            )

    def begin(self, options: Mapping[str, Any], protocols: Mapping[str, Any]) -> dict[str, Any]:
        """Create the folder, and remove partial files of a killed command. See `check`.

        Returns the protocols of all suites, those of earlier commands included.
        """
        before = read_json_object(self._options_path) if self._options_path.exists() else {}
        known = check(dict[str, Any], before.get("suites", {}), source=f"{self._options_path}: suites")
        suites = {**known, **protocols}
        write_json(self._options_path, {**before, **options, "suites": suites})
        for draft in self.folder.glob("*.partial"):
            draft.unlink()
        return suites

    def has(self, key: DemonstrationKey) -> bool:
        """Whether the episode was finished, successfully or not."""
        return self._success(key).exists() or self._failure(key).exists()

    def add(
        self,
        key: DemonstrationKey,
        rows: pa.Table,
        *,
        solved: bool,
        language: str,
        histograms: Mapping[str, Histogram],
    ) -> None:
        """Write a demonstration atomically. See `StoredEpisode`."""
        about = {
            "key": dataclasses.asdict(key),
            "solved": solved,
            "language": language,
            "histograms": {camera: counts.tolist() for camera, counts in histograms.items()},
        }
        path = self._success(key)
        draft = path.with_suffix(f".{os.getpid()}.partial")
        pq.write_table(rows.replace_schema_metadata({"about": json.dumps(about)}), draft)
        draft.replace(path)

    def add_failure(self, key: DemonstrationKey) -> None:
        """Record a failed episode without its frames; it is not played again."""
        write_json(self._failure(key), {"key": dataclasses.asdict(key)})

    def demonstrations(self) -> list[StoredEpisode]:
        """All demonstrations, in the order of their keys."""
        found = []
        for path in self.folder.glob("*.parquet"):
            with readable_table(path):
                metadata = pq.read_schema(path).metadata or {}
            content = parse_json_object(metadata.get(b"about", b""), str(path))
            found.append(check(StoredEpisode, {**content, "path": path}, source=str(path)))
        return sorted(found, key=lambda episode: episode.key)

    def failures(self) -> list[DemonstrationKey]:
        """All failed episodes, kept or not, in the order of their keys."""
        kept = (episode.key for episode in self.demonstrations() if not episode.solved)
        failed = (
            check(DemonstrationKey, read_json_object(path).get("key"), source=str(path))
            for path in self.folder.glob("*.failed.json")
        )
        return sorted([*failed, *kept])

    @property
    def _options_path(self) -> Path:
        return self.folder / "options.json"

    def _success(self, key: DemonstrationKey) -> Path:
        return self.folder / f"{key}.parquet"

    def _failure(self, key: DemonstrationKey) -> Path:
        return self.folder / f"{key}.failed.json"
