"""Stores collected episodes: one file per episode, written atomically."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int64

from configs.errors import UsageError
from configs.paths import read_json_object
from configs.training import CollectConfig
from eval.collect.plan import DemonstrationKey
from eval.records.json_files import write_json
from oxygen.training import layout

_MAY_DIFFER = {"suites", "task_ids", "num_trials_per_task", "init_ids", "seeds", "assets", "expert_noise"}
"""Options that select episodes, so that a later command may change them."""

Histogram = Int64[np.ndarray, "channel 256"]
"""Counts of the 256 levels in each channel of a camera's images."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredEpisode:
    """A demonstration on disk: its table at `path`, and the histogram of each camera's images.

    If it is not `solved`, none of its actions is a training target.
    """

    key: DemonstrationKey
    solved: bool
    language: str
    histograms: Mapping[str, Histogram]
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

    def check(self, config: CollectConfig, shared: Mapping[str, Any]) -> None:
        """Check that demonstrations of this configuration may be added. Writes nothing.

        Args:
            config: The options.
            shared: What else all episodes share: conventions, weights, and the protocol of each suite.

        Raises:
            UsageError: The dataset was begun with other options, its episodes have been deleted, or the
                folder holds something else.
        """
        if self._options_path.exists():
            before = read_json_object(self._options_path)
            if "policy" not in before:
                raise UsageError(f"{self._options_path}: lacks 'policy'; give another folder with --output")
            for name, value in {**_options(config), **shared}.items():
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

    def begin(self, config: CollectConfig, shared: Mapping[str, Any]) -> None:
        """Create the folder, and remove partial files of a killed command. See `check`."""
        before = read_json_object(self._options_path) if self._options_path.exists() else {}
        write_json(self._options_path, {**before, **_options(config), **shared})  # keeps other suites
        for draft in self.folder.glob("*.partial"):
            draft.unlink()

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
            "histograms": {name: values.tolist() for name, values in histograms.items()},
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
            about = json.loads(pq.read_schema(path).metadata[b"about"])
            about["key"] = DemonstrationKey(**about["key"])
            about["histograms"] = {name: np.array(values) for name, values in about["histograms"].items()}
            found.append(StoredEpisode(**about, path=path))
        return sorted(found, key=lambda episode: episode.key)

    def failures(self) -> list[DemonstrationKey]:
        """All failed episodes, kept or not, in the order of their keys."""
        kept = (episode.key for episode in self.demonstrations() if not episode.solved)
        records = (read_json_object(path) for path in self.folder.glob("*.failed.json"))
        return sorted([*(DemonstrationKey(**record["key"]) for record in records), *kept])

    @property
    def _options_path(self) -> Path:
        return self.folder / "options.json"

    def _success(self, key: DemonstrationKey) -> Path:
        return self.folder / f"{key}.parquet"

    def _failure(self, key: DemonstrationKey) -> Path:
        return self.folder / f"{key}.failed.json"


def _options(config: CollectConfig) -> dict[str, Any]:
    """The options that all episodes of a dataset share."""
    return config.model_dump(mode="json", exclude=_MAY_DIFFER)
