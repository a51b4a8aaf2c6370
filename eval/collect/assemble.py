"""Assembles stored episodes into a dataset, in the order of their keys."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from configs.collection import CollectConfig
from configs.interface import Interface
from eval.collect import statistics
from eval.collect.statistics import Histogram, Statistics
from eval.collect.store import StoredEpisode
from eval.collect.tables import arrow_schema, frame_features
from eval.collect.video_files import VideoFiles
from oxygen.training import layout
from oxygen.training.demonstrations import as_array
from oxygen.training.layout import Feature

_PARTS = ("data", "videos", "meta")
"""The folders of a dataset. `meta` is put in place last; a folder without it is not a dataset."""


def assemble(
    kept: Sequence[StoredEpisode], dataset: Path, config: CollectConfig, *, interface: Interface, fps: float
) -> None:
    """Write a dataset of at least one demonstration, replacing the existing one.

    Args:
        kept: The demonstrations, in order.
        dataset: The dataset's folder.
        config: Image storage and horizon.
        interface: The cameras, state and actions of the episodes.
        fps: Frames per simulated second.
    """
    draft = dataset / ".assembling"
    shutil.rmtree(draft, ignore_errors=True)
    features = frame_features(config, interface)
    tasks = {
        language: number for number, language in enumerate(dict.fromkeys(each.language for each in kept))
    }
    with _Writer(draft, features, tasks=tasks, fps=fps) as writer:
        for episode in kept:
            writer.add(episode)
        writer.describe()
    for part in ("meta", *_PARTS[:-1], ".cache"):
        shutil.rmtree(dataset / part, ignore_errors=True)
    for part in _PARTS:
        if (draft / part).exists():
            (draft / part).rename(dataset / part)
    shutil.rmtree(draft)


class _Writer:
    """Writes a dataset: `add` for each episode in order, then `describe` for its metadata."""

    def __init__(
        self, root: Path, features: Mapping[str, Feature], *, tasks: Mapping[str, int], fps: float
    ) -> None:
        self._root = root
        self._tasks = tasks
        self._fps = fps
        self._features = dict(features)
        self._schema = arrow_schema(self._features)
        self._table = _DataTables(root, self._schema)
        cameras = layout.cameras_of(self._features)
        has_videos = any(feature["dtype"] == "video" for feature in features.values())
        self._videos = VideoFiles(root, cameras, fps) if has_videos else None
        self._episodes: list[dict[str, Any]] = []
        self._numbers: list[pa.Table] = []
        self._histograms: list[Mapping[str, Histogram]] = []
        self._frames = 0

    def add(self, episode: StoredEpisode) -> None:
        rows = episode.rows()
        count, number = rows.num_rows, len(self._episodes)
        placed = self._placed(rows, episode.language)
        numbers = self._numbers_of(placed)
        found = _statistics(numbers, episode.histograms, self._features)
        self._episodes.append(
            {
                "episode_index": number,
                "tasks": [episode.language],
                "length": count,
                **self._table.add(placed),
                "dataset_from_index": self._frames,
                "dataset_to_index": self._frames + count,
                **(self._videos.add(rows) if self._videos else {}),
                **statistics.flattened(found),
                **{f"meta/episodes/{name}": index for name, index in layout.place(0).items()},
            }
        )
        self._numbers.append(numbers)
        self._histograms.append(episode.histograms)
        self._frames += count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._table.close()
        if self._videos:
            self._videos.close()

    def describe(self) -> None:
        self._write_table(layout.EPISODES.format(**layout.place(0)), pa.Table.from_pylist(self._episodes))
        self._write_table(layout.TASKS, _task_table(self._tasks))
        everything = pa.concat_tables(self._numbers)
        histograms = {
            camera: np.sum([each[camera] for each in self._histograms], axis=0)
            for camera in self._histograms[0]
        }
        self._write_json(layout.STATS, _statistics(everything, histograms, self._features))
        self._write_json(layout.INFO, self._info())

    def _placed(self, rows: pa.Table, language: str) -> pa.Table:
        """The rows as the dataset stores them, with the columns that depend on the episode's position."""
        count = rows.num_rows
        index = {
            "episode_index": np.full(count, len(self._episodes)),
            "index": self._frames + np.arange(count),
            "task_index": np.full(count, self._tasks[language]),
        }
        columns = [
            pa.array(index[name]) if name in index else rows.column(name) for name in self._schema.names
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _numbers_of(self, placed: pa.Table) -> pa.Table:
        """The numeric columns that get statistics (our own ones do not), and which actions are padded."""
        texts = ("string", "image", "video")
        names = [name for name in placed.schema.names if self._features[name]["dtype"] not in texts]
        return placed.select(
            [name for name in names if name == layout.PADDED or not name.startswith(layout.OWN)]
        )

    def _info(self) -> dict[str, Any]:
        whole = self._fps == int(self._fps)
        return {
            "codebase_version": layout.VERSION,
            "robot_type": "panda",
            "total_episodes": len(self._episodes),
            "total_frames": self._frames,
            "total_tasks": len(self._tasks),
            "chunks_size": layout.FILES_PER_CHUNK,
            "data_files_size_in_mb": layout.DATA_FILE_MB,
            "video_files_size_in_mb": layout.VIDEO_FILE_MB,
            "fps": int(self._fps) if whole else self._fps,
            "splits": {"train": f"0:{len(self._episodes)}"},
            "data_path": layout.DATA,
            "video_path": layout.VIDEO if self._videos else None,
            "features": self._described(),
        }

    def _described(self) -> dict[str, Any]:
        """The features, with LeRobot's description of videos."""
        if self._videos is None:
            return self._features
        return {
            name: {**feature, "info": self._videos.describe(feature["shape"])}
            if feature["dtype"] == "video"
            else feature
            for name, feature in self._features.items()
        }

    def _write_table(self, name: str, table: pa.Table) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")


class _DataTables:
    """The tables of frames: one row group per episode, a new file when one is full."""

    def __init__(self, root: Path, schema: pa.Schema) -> None:
        self._root = root
        self._schema = schema
        self._number = 0
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.Table) -> dict[str, int]:
        """Append an episode; returns its file indices, as columns of the episodes' table."""
        if self._bytes and self._bytes + rows.nbytes > layout.DATA_FILE_MB * 2**20:
            self.close()
            self._number += 1
            self._bytes = 0
        if self._writer is None:
            path = self._root / layout.DATA.format(**layout.place(self._number))
            path.parent.mkdir(parents=True, exist_ok=True)
            texts = [field.name for field in self._schema if pa.types.is_string(field.type)]
            self._writer = pq.ParquetWriter(path, self._schema, use_dictionary=texts)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._bytes += rows.nbytes
        return {f"data/{name}": index for name, index in layout.place(self._number).items()}

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _statistics(
    numbers: pa.Table, histograms: Mapping[str, Histogram], features: Mapping[str, layout.Feature]
) -> dict[str, Statistics]:
    """Statistics by feature; of actions, over frames whose action is a training target.

    An episode that a learner solved alone, or that failed, has none. Readers expect numbers, so it gets those
    of all its actions.
    """
    count = numbers.num_rows
    found = {
        layout.IMAGES + camera: statistics.of_images(histogram, count=count)
        for camera, histogram in histograms.items()
    }
    shapes = {name: tuple(features[name]["shape"]) for name in numbers.schema.names}
    columns = {name: as_array(numbers[name], shape) for name, shape in shapes.items()}
    targets = ~columns.pop(layout.PADDED)[:, 0]
    for name, values in columns.items():
        rows = values[targets] if name == layout.ACTION and targets.any() else values
        found[name] = statistics.of_numbers(rows.astype(np.float64), count=count)
    return found


def _task_table(tasks: Mapping[str, int]) -> pa.Table:
    """Instruction to number, with the instructions as pandas' index, as LeRobot expects."""
    columns = {"task_index": list(tasks.values()), "task": list(tasks)}
    types = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
            for name, (kind, numpy) in types.items()
        ],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.0.0",
    }
    return pa.table(columns).replace_schema_metadata({"pandas": json.dumps(pandas)})
