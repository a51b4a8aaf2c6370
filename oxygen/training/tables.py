"""Opens the Parquet tables of a dataset and checks them against the layout."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from configs.errors import UsageError, nearest_first
from configs.paths import regular
from oxygen.training import layout

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


@dataclasses.dataclass(frozen=True, kw_only=True)
class Info:
    """Contents of `meta/info.json`.

    Attributes:
        fps: Frames (queries) per second of simulated time.
        features: Column to dtype, shape and names.
        total_episodes: Episodes in the dataset.
        total_frames: Frames in the dataset.
        data_path: Path pattern of the tables.
        video_path: Path pattern of the videos; None if images are stored in the tables.
    """

    fps: float
    features: Mapping[str, Mapping[str, Any]]
    total_episodes: int
    total_frames: int
    data_path: str
    video_path: str | None


def read_info(root: Path) -> Info:
    """Read a dataset's `info.json`.

    Raises:
        UsageError: It is missing, of another version, or lacks a required column.
    """
    path = root / layout.INFO
    try:
        content = json.loads(regular(path).read_text(encoding="utf-8"))
        version = content["codebase_version"]
        known = {field.name: content[field.name] for field in dataclasses.fields(Info)}
        known["fps"] = float(content["fps"])
        info = Info(**known)
    except OSError as error:
        raise UsageError(
            f"{str(root)!r} holds no demonstrations: cannot read {layout.INFO}: {error.strerror}. "
            f"{_nearest_to(root)}"
        ) from None
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: not the info of a LeRobot dataset: {error!r}") from None
    if version != layout.VERSION:
        raise UsageError(f"{path}: the layout is {version}; this reads {layout.VERSION}. {_OTHERS}")
    _check_features(path, info.features)
    return info


_OTHERS = (
    "For datasets not written by `python -m eval.collect`, load episodes yourself and pass them to "
    "`Samples.from_episodes`: docs/training.md has examples for LeRobot and HDF5"
)


def _nearest_to(root: Path) -> str:
    """Suggest the nearest datasets, or how to collect one."""
    existing = next(folder for folder in (root, *root.parents) if folder.is_dir())
    patterns = [
        f"{above}{layout.INFO}" for above in ("", "*/", "*/*/") if existing != existing.parent.resolve()
    ]
    known = [info.parents[1] for pattern in patterns for info in existing.glob(pattern)]
    if not known:
        return f"Collect some: python -m eval.collect --config smoke --output {root}"
    return f"Nearest: {', '.join(nearest_first(root, known)[:3])}"


def _check_features(path: Path, features: Mapping[str, Mapping[str, Any]]) -> None:
    if layout.CHUNK not in features:
        raise UsageError(f"{path}: no column {layout.CHUNK!r} of action chunks; collect again. {_OTHERS}")
    for name, dtype in layout.expected_dtypes().items():
        if name not in features:
            raise UsageError(f"{path}: no column {name!r}; collect again with `python -m eval.collect`")
        if features[name]["dtype"] != dtype:
            raise UsageError(f"{path}: column {name!r} is {features[name]['dtype']}, should be {dtype}")
    cameras = layout.cameras_of(features)
    kinds = {features[layout.IMAGES + camera]["dtype"] for camera in cameras}
    if kinds not in ({"image"}, {"video"}):
        raise UsageError(
            f"{path}: the cameras {list(cameras)} are {sorted(kinds)}; all must be image, or all video"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeLocation:
    """Location of an episode in the dataset's files.

    Attributes:
        start: Index of its first frame in the dataset.
        stop: One past the index of its last frame.
        file: Its table.
        row: Its first row in the table.
        videos: Camera to its video and the episode's start time (s) there; empty without videos.
    """

    start: int
    stop: int
    file: Path
    row: int
    videos: Mapping[str, tuple[Path, float]]


def read_episodes(root: Path, info: Info) -> tuple[EpisodeLocation, ...]:
    """Locate all episodes, in order.

    Raises:
        UsageError: The episodes are not contiguous, or their totals differ from `info.json`.
    """
    episodes: list[EpisodeLocation] = []
    rows: dict[Path, int] = {}
    for path in _files(root, layout.EPISODES):
        for entry in read_columns(path, _episode_columns(info)).to_pylist():
            episode = _stored_episode(root, info, entry, rows)
            if episode.start != (episodes[-1].stop if episodes else 0) or episode.stop <= episode.start:
                raise UsageError(
                    f"{path}: episode {len(episodes)} has frames {episode.start} to {episode.stop}"
                )
            rows[episode.file] = episode.row + episode.stop - episode.start
            episodes.append(episode)
    frames = episodes[-1].stop if episodes else 0
    if (len(episodes), frames) != (info.total_episodes, info.total_frames):
        raise UsageError(
            f"{root}: {len(episodes)} episodes and {frames} frames, but {layout.INFO} says "
            f"{info.total_episodes} and {info.total_frames}"
        )
    for path, expected in rows.items():
        found = open_table(path).metadata.num_rows
        if found != expected:
            raise UsageError(f"{path}: {found} rows, the episodes need {expected}")
    return tuple(episodes)


def _episode_columns(info: Info) -> list[str]:
    columns = ["dataset_from_index", "dataset_to_index", "data/chunk_index", "data/file_index"]
    if info.video_path is not None:
        for camera in layout.cameras_of(info.features):
            key = f"videos/{layout.IMAGES}{camera}"
            columns += [f"{key}/chunk_index", f"{key}/file_index", f"{key}/from_timestamp"]
    return columns


def _stored_episode(
    root: Path, info: Info, entry: Mapping[str, Any], rows: Mapping[Path, int]
) -> EpisodeLocation:
    place = {name: entry[f"data/{name}"] for name in ("chunk_index", "file_index")}
    file, videos = root / info.data_path.format(**place), {}
    for camera in layout.cameras_of(info.features) if info.video_path else ():
        key = layout.IMAGES + camera
        place = {name: entry[f"videos/{key}/{name}"] for name in ("chunk_index", "file_index")}
        video = root / str(info.video_path).format(video_key=key, **place)
        videos[camera] = (video, entry[f"videos/{key}/from_timestamp"])
    return EpisodeLocation(
        start=entry["dataset_from_index"],
        stop=entry["dataset_to_index"],
        file=file,
        row=rows.get(file, 0),
        videos=videos,
    )


def _files(root: Path, pattern: str) -> Iterator[Path]:
    folder = Path(pattern).parts[:-2]
    paths = sorted(root.joinpath(*folder).glob("*/*.parquet"))
    if not paths:
        raise UsageError(f"{root}: no table in {'/'.join(folder)}")
    yield from paths


def open_table(path: Path) -> "pq.ParquetFile":
    """Open a Parquet file, memory-mapped.

    Raises:
        UsageError: It is missing or damaged.
    """
    import pyarrow.parquet as pq

    with arrow_errors(path):
        return pq.ParquetFile(path, memory_map=True)


@contextlib.contextmanager
def arrow_errors(path: Path) -> Iterator[None]:
    """Report Arrow's errors as a one-line error that names the file.

    Raises:
        UsageError: Arrow cannot read the file.
    """
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{path}: cannot be read as Parquet: {reason}") from None


def read_columns(path: Path, columns: list[str]) -> "pa.Table":
    """Read some columns of a table.

    Raises:
        UsageError: One is missing or damaged.
    """
    file = open_table(path)
    missing = set(columns) - set(file.schema_arrow.names)
    if missing:
        raise UsageError(f"{path}: no column {min(missing)!r}, which {layout.INFO} lists")
    with arrow_errors(path):
        return file.read(columns)


def as_array(column: "pa.ChunkedArray", shape: tuple[int, ...]) -> np.ndarray:
    """Convert a column of (nested) lists to an array, [row, *shape].

    Raises:
        UsageError: The lists have other lengths.
    """
    import pyarrow as pa

    values = column.combine_chunks()
    while isinstance(values, pa.ListArray | pa.FixedSizeListArray):
        values = values.flatten()
    if len(values) != len(column) * int(np.prod(shape)):
        raise UsageError(f"a column holds {len(values)} numbers in {len(column)} rows of shape {shape}")
    return values.to_numpy(zero_copy_only=False).reshape(len(column), *shape)
