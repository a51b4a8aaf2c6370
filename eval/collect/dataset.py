"""Assembles stored episodes into a dataset in LeRobot's layout, in key order, with a contact sheet."""

import contextlib
import functools
import io
import json
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from PIL import Image

from configs.training import CollectConfig
from contracts.errors import UsageError
from contracts.interface import Interface
from eval.collect.store import Histogram, StoredEpisode
from oxygen.training import layout
from oxygen.training.demonstrations import Demonstrations, as_array
from oxygen.training.layout import Feature
from videos.mp4 import REMEDY, Mp4Writer, VideoError
from videos.text import clean

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}

Statistics = dict[str, Any]
"""Statistic to a (nested) list of numbers."""

_SHRINKS = 8
"""Minimum ratio of PNG to video size (measured: 30). The size of the video being written depends on the state
of the encoder, and an episode's position must not."""

_PARTS = ("data", "videos", "meta")
"""The folders of a dataset. `meta` is put in place last; a folder without it is not a dataset."""

_SHEET_EPISODES = 8


def assemble(
    kept: Sequence[StoredEpisode], dataset: Path, config: CollectConfig, *, interface: Interface, fps: float
) -> None:
    """Write a dataset of at least one demonstration, in that order, replacing the existing one.

    `fps` counts frames per simulated second.
    """
    draft = dataset / ".assembling"
    shutil.rmtree(draft, ignore_errors=True)
    images = "video" if config.images == "video" else "image"
    fed = config.feedback is not None
    features = layout.features(interface, images=images, horizon=config.horizon, fed=fed)
    try:
        with contextlib.closing(_Writer(draft, features, fps)) as writer:
            for episode in kept:
                writer.add(episode)
            writer.describe()
    except VideoError as error:
        raise UsageError(
            f"{error}; {REMEDY}. The episodes are kept: the same command then writes the dataset"
        ) from None
    for part in ("meta", *_PARTS[:-1], ".cache"):
        shutil.rmtree(dataset / part, ignore_errors=True)
    for part in _PARTS:
        if (draft / part).exists():
            (draft / part).rename(dataset / part)
    shutil.rmtree(draft)


class _Files:
    """Numbered files of a kind: episodes one after the other, a new file when one is full."""

    def __init__(
        self, root: Path, pattern: str, limit_bytes: float, open_file: Callable[[Path], Any]
    ) -> None:
        self._root, self._pattern, self._open, self._limit = root, pattern, open_file, limit_bytes
        self._writer: Any = None
        self.number, self.bytes, self.frames = 0, 0, 0

    def open_for(self, new_bytes: int) -> Any:
        """The writer of the current file, or of the next one if this one cannot take so much more."""
        if self.bytes and self.bytes + new_bytes > self._limit:
            self.close()
            self.number, self.bytes, self.frames = self.number + 1, 0, 0
        if self._writer is None:
            path = self._root / self._pattern.format(**layout.place(self.number))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._open(path)
        return self._writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class _Writer:
    """Writes a dataset: `add` for each episode in order, then `describe` for its metadata."""

    def __init__(self, root: Path, features: Mapping[str, Feature], fps: float) -> None:
        self._root, self._features, self._fps = root, dict(features), fps
        self._schema = arrow_schema(self._features)
        texts = [field.name for field in self._schema if pa.types.is_string(field.type)]
        open_table = functools.partial(pq.ParquetWriter, schema=self._schema, use_dictionary=texts)
        self._tables = _Files(root, layout.DATA, layout.DATA_FILE_MB * 2**20, open_table)
        self._videos: dict[str, _Files] = {}
        for name, feature in features.items():
            if feature["dtype"] == "video":
                height, width, _ = feature["shape"]
                pattern = layout.VIDEO.replace("{video_key}", name)
                open_video = functools.partial(Mp4Writer, width=width, height=height, fps=fps)
                limit_bytes = _SHRINKS * layout.VIDEO_FILE_MB * 2**20
                self._videos[name] = _Files(root, pattern, limit_bytes, open_video)
        self._tasks: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self._numbers: list[pa.Table] = []
        self._histograms: list[Mapping[str, Histogram]] = []
        self._frames = 0

    def close(self) -> None:
        for files in (self._tables, *self._videos.values()):
            files.close()

    def add(self, episode: StoredEpisode) -> None:
        rows = episode.rows()
        count, number = rows.num_rows, len(self._episodes)
        placed = {
            "episode_index": np.full(count, number),
            "index": self._frames + np.arange(count),
            "task_index": np.full(count, self._tasks.setdefault(episode.language, len(self._tasks))),
        }
        columns = [pa.array(placed[each]) if each in placed else rows[each] for each in self._schema.names]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        # Statistics are of LeRobot's numeric columns; of actions, over those that are not padded.
        names = [
            name for name in table.schema.names if name == layout.PADDED or not name.startswith(layout.OWN)
        ]
        texts = ("string", "image", "video")
        numbers = table.select([name for name in names if self._features[name]["dtype"] not in texts])
        found = _statistics(numbers, episode.histograms, self._features)
        self._tables.open_for(table.nbytes).write_table(table, row_group_size=count)
        self._tables.bytes += table.nbytes
        self._episodes.append(
            {
                "episode_index": number,
                "tasks": [episode.language],
                "length": count,
                **{f"data/{name}": index for name, index in layout.place(self._tables.number).items()},
                "dataset_from_index": self._frames,
                "dataset_to_index": self._frames + count,
                **{
                    f"videos/{camera}/{name}": value
                    for camera in self._videos
                    for name, value in self._add_video(camera, rows).items()
                },
                **{
                    f"stats/{name}/{statistic}": value
                    for name, each in found.items()
                    for statistic, value in each.items()
                },
                **{f"meta/episodes/{name}": index for name, index in layout.place(0).items()},
            }
        )
        self._numbers.append(numbers)
        self._histograms.append(episode.histograms)
        self._frames += count

    def _add_video(self, camera: str, rows: pa.Table) -> dict[str, Any]:
        files = self._videos[camera]
        writer = files.open_for(0)
        start = files.frames / self._fps
        for cell in rows[camera]:
            png = cell["bytes"].as_py()
            writer.write(np.asarray(Image.open(io.BytesIO(png))))
            files.frames += 1
            files.bytes += len(png)
        end = files.frames / self._fps
        return {**layout.place(files.number), "from_timestamp": start, "to_timestamp": end}

    def describe(self) -> None:
        self._write_table(layout.EPISODES.format(**layout.place(0)), pa.Table.from_pylist(self._episodes))
        self._write_table(layout.TASKS, _task_table(self._tasks))
        everything = pa.concat_tables(self._numbers)
        histograms = {
            camera: np.sum([each[camera] for each in self._histograms], axis=0)
            for camera in self._histograms[0]
        }
        self._write_json(layout.STATS, _statistics(everything, histograms, self._features))
        about_video = {
            "video.codec": "h264",
            "video.pix_fmt": "yuv420p",
            "video.fps": self._fps,
            "video.is_depth_map": False,
            "has_audio": False,
        }
        described = dict(self._features)
        for name in self._videos:
            sizes = zip(("height", "width", "channels"), described[name]["shape"], strict=True)
            about = {**{f"video.{side}": size for side, size in sizes}, **about_video}
            described[name] = {**described[name], "info": about}
        info = {
            "codebase_version": layout.VERSION,
            "robot_type": "panda",
            "total_episodes": len(self._episodes),
            "total_frames": self._frames,
            "total_tasks": len(self._tasks),
            "chunks_size": layout.FILES_PER_CHUNK,
            "data_files_size_in_mb": layout.DATA_FILE_MB,
            "video_files_size_in_mb": layout.VIDEO_FILE_MB,
            "fps": int(self._fps) if self._fps.is_integer() else self._fps,
            "splits": {"train": f"0:{len(self._episodes)}"},
            "data_path": layout.DATA,
            "video_path": layout.VIDEO if self._videos else None,
            "features": described,
        }
        self._write_json(layout.INFO, info)

    def _write_table(self, name: str, table: pa.Table) -> None:
        (self._root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, self._root / name)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        (self._root / name).write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")


def arrow_schema(features: Mapping[str, Feature]) -> pa.Schema:
    """The schema of a table of features, with the metadata that Hugging Face's `datasets` reads."""
    stored = {name: _types(feature) for name, feature in features.items() if feature["dtype"] != "video"}
    described = {name: hugging_face for name, (_, hugging_face) in stored.items()}
    metadata = {"huggingface": json.dumps({"info": {"features": described}})}
    return pa.schema([(name, arrow) for name, (arrow, _) in stored.items()], metadata=metadata)


def _types(feature: Feature) -> tuple[pa.DataType, dict[str, Any]]:
    """The types of a column for Arrow and for `datasets`."""
    dtype, shape = feature["dtype"], tuple(feature["shape"])
    if dtype == "image":
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())]), {"_type": "Image"}
    arrow = pa.bool_() if dtype == "bool" else pa.type_for_alias(dtype)
    value = {"dtype": dtype, "_type": "Value"}
    match shape:
        case (1,):
            return arrow, value
        case (size,):
            return pa.list_(arrow, size), {"feature": value, "length": size, "_type": "Sequence"}
        case _:
            array = {"shape": list(shape), "dtype": dtype, "_type": f"Array{len(shape)}D"}
            return pa.list_(pa.list_(arrow)), array


def _statistics(
    numbers: pa.Table, histograms: Mapping[str, Histogram], features: Mapping[str, layout.Feature]
) -> dict[str, Statistics]:
    """Statistics by feature; of actions, over frames whose action is a training target.

    An episode that a learner solved alone, or that failed, has none. Readers expect numbers, so it gets those
    of all its actions.
    """
    count = numbers.num_rows
    found = {
        layout.IMAGES + camera: _image_statistics(histogram, count=count)
        for camera, histogram in histograms.items()
    }
    shapes = {name: tuple(features[name]["shape"]) for name in numbers.schema.names}
    columns = {name: as_array(numbers[name], shape) for name, shape in shapes.items()}
    targets = ~columns.pop(layout.PADDED)[:, 0]
    for name, values in columns.items():
        rows = values[targets] if name == layout.ACTION and targets.any() else values
        rows = rows.astype(np.float64)
        of_channels = {each: getattr(rows, each)(axis=0) for each in ("min", "max", "mean", "std")}
        of_channels |= {each: np.quantile(rows, share, axis=0) for each, share in QUANTILES.items()}
        found[name] = {each: value.tolist() for each, value in of_channels.items()} | {"count": [len(rows)]}
    return found


def _image_statistics(histogram: Histogram, *, count: int) -> Statistics:
    """Statistics of each channel, as [channel, 1, 1] in units of full brightness."""
    weights = histogram / histogram.sum(axis=1, keepdims=True)
    levels = np.arange(256) / 255
    mean = weights @ levels
    variance = np.maximum(weights @ levels**2 - mean**2, 0)
    below = weights.cumsum(axis=1)
    found = {
        "min": levels[(histogram > 0).argmax(axis=1)],
        "max": levels[255 - (histogram[:, ::-1] > 0).argmax(axis=1)],
        "mean": mean,
        "std": np.sqrt(variance),
        # Rounding may leave the last sum just below 1.
        **{name: levels[(below >= share - 1e-12).argmax(axis=1)] for name, share in QUANTILES.items()},
    }
    return {**{name: value[:, None, None].tolist() for name, value in found.items()}, "count": [count]}


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


def write_contact_sheet(demonstrations: Demonstrations, path: Path) -> None:
    """Draw the first, middle and last image of up to eight episodes, evenly spread, with their narrations."""
    episodes, columns = demonstrations.episodes, demonstrations.columns
    count = min(len(episodes), _SHEET_EPISODES)
    figure = Figure(figsize=(7.0, 3.2 * count), layout="constrained")
    for number, part in enumerate(figure.subfigures(count, squeeze=False)[:, 0]):
        episode = episodes[number * len(episodes) // count]
        start, last = episode.start, episode.stop - 1
        suite, task_id, init_id, seed, noise = (
            columns[layout.OWN + name][start] for name in ("suite", "task_id", "init_id", "seed", "noise")
        )
        title = (
            f"{suite} {task_id}, init {init_id}, seed {seed}{f', noise {noise:g}' if noise else ''}, "
            f"{episode.stop - start} frames: {columns[layout.LANGUAGE][start]}"
        )
        part.suptitle(_wrapped(title, 90), fontsize=9, parse_math=False)
        for axes, index in zip(part.subplots(1, 3), (start, (start + last) // 2, last), strict=True):
            frame = demonstrations[index]
            narration = frame[layout.OWN + "narration"]
            caption = f"step {frame[layout.STEP]}{f': {narration}' if narration else ''}"
            axes.imshow(frame[layout.IMAGES + demonstrations.cameras[0]])
            axes.set(xticks=[], yticks=[])
            axes.set_xlabel(_wrapped(caption, 36), fontsize=7, parse_math=False)
    figure.savefig(path)


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(clean(text), width, max_lines=3, placeholder="…")
