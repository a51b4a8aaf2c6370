"""The tables of a dataset of demonstrations: opened, and checked against the layout."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from configs.errors import UsageError, nearest_first
from oxygen.training import layout

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


@dataclasses.dataclass(frozen=True, kw_only=True)
class Info:
    """What `meta/info.json` says.

    Attributes:
        fps: Frames (queries) per second of simulated time.
        features: Column to dtype, shape and names.
        total_episodes: Episodes in the dataset.
        total_frames: Frames in the dataset.
        data_path: Pattern of the tables' paths.
        video_path: Pattern of the videos' paths; None if images lie in the tables.
    """

    fps: float
    features: Mapping[str, Mapping[str, Any]]
    total_episodes: int
    total_frames: int
    data_path: str
    video_path: str | None


def read_info(root: Path) -> Info:
    """The dataset's `info.json`.

    Raises:
        UsageError: There is none, it is of another version, or it lacks what demonstrations have.
    """
    path = root / layout.INFO
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["codebase_version"]
        known = {field.name: content[field.name] for field in dataclasses.fields(Info)}
        known["fps"] = float(content["fps"])
        info = Info(**known)
    except OSError as error:
        raise UsageError(
            f"{str(root)!r} holds no demonstrations: cannot read {layout.INFO}: {error.strerror}. "
            f"{_nearest_to(root)}"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not the info of a LeRobot dataset: {error!r}") from None
    if version != layout.VERSION:
        raise UsageError(f"{path}: the layout is {version}; this reads {layout.VERSION}. {_OTHERS}")
    _check_features(path, info.features)
    return info


_OTHERS = (
    "Recordings that `python -m eval.collect` has not written are read by a loop of yours, into "
    "`Samples.from_episodes`: docs/training.md has one for LeRobot's data and one for HDF5"
)


def _nearest_to(root: Path) -> str:
    """Which demonstrations may have been meant, or how to come by some."""
    there = next(place for place in (root, *root.parents) if place.is_dir())
    patterns = [f"{above}{layout.INFO}" for above in ("", "*/", "*/*/") if there != there.parent.resolve()]
    known = [info.parents[1] for pattern in patterns for info in there.glob(pattern)]
    if not known:
        return f"Collect some: python -m eval.collect --suite libero_object --output {root}"
    return f"Nearest: {', '.join(nearest_first(root, known)[:3])}"


def _check_features(path: Path, features: Mapping[str, Mapping[str, Any]]) -> None:
    if layout.PADDED not in features:
        raise UsageError(
            f"{path}: no column {layout.PADDED!r}, which says where an episode's actions end. {_OTHERS}"
        )
    for name, dtype in layout.expected_dtypes().items():
        if name not in features:
            raise UsageError(f"{path}: no column {name!r}; collect anew with `python -m eval.collect`")
        if features[name]["dtype"] != dtype:
            raise UsageError(f"{path}: column {name!r} is {features[name]['dtype']}, should be {dtype}")
    cameras = layout.cameras_of(features)
    kinds = {features[layout.IMAGES + camera]["dtype"] for camera in cameras}
    if kinds not in ({"image"}, {"video"}):
        raise UsageError(
            f"{path}: the cameras {list(cameras)} are {sorted(kinds)}; all must be image, or all video"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """Where an episode lies.

    Attributes:
        start: Index of its first frame in the dataset.
        stop: One past the index of its last frame.
        file: Its table.
        row: Its first row in the table.
        videos: Camera to the file and the time (s) at which the episode begins in it; empty without videos.
    """

    start: int
    stop: int
    file: Path
    row: int
    videos: Mapping[str, tuple[Path, float]]


def read_spans(root: Path, info: Info) -> tuple[Span, ...]:
    """Where every episode lies, in order.

    Raises:
        UsageError: The episodes do not follow on each other, or do not add up to what `info.json` says.
    """
    spans: list[Span] = []
    rows: dict[Path, int] = {}
    for path in _files(root, layout.EPISODES):
        for episode in read_columns(path, _span_columns(info)).to_pylist():
            span = _span(root, info, episode, rows)
            if span.start != (spans[-1].stop if spans else 0) or span.stop <= span.start:
                raise UsageError(f"{path}: episode {len(spans)} has frames {span.start} to {span.stop}")
            rows[span.file] = span.row + span.stop - span.start
            spans.append(span)
    frames = spans[-1].stop if spans else 0
    if (len(spans), frames) != (info.total_episodes, info.total_frames):
        raise UsageError(
            f"{root}: {len(spans)} episodes of {frames} frames in all, but {layout.INFO} says "
            f"{info.total_episodes} and {info.total_frames}"
        )
    _check_rows(rows)
    return tuple(spans)


def _span_columns(info: Info) -> list[str]:
    columns = ["dataset_from_index", "dataset_to_index", "data/chunk_index", "data/file_index"]
    if info.video_path is not None:
        for camera in layout.cameras_of(info.features):
            key = f"videos/{layout.IMAGES}{camera}"
            columns += [f"{key}/chunk_index", f"{key}/file_index", f"{key}/from_timestamp"]
    return columns


def _span(root: Path, info: Info, episode: Mapping[str, Any], rows: Mapping[Path, int]) -> Span:
    file = root / info.data_path.format(
        chunk_index=episode["data/chunk_index"], file_index=episode["data/file_index"]
    )
    return Span(
        start=episode["dataset_from_index"],
        stop=episode["dataset_to_index"],
        file=file,
        row=rows.get(file, 0),
        videos={} if info.video_path is None else _videos(root, info, episode, info.video_path),
    )


def _videos(
    root: Path, info: Info, episode: Mapping[str, Any], pattern: str
) -> dict[str, tuple[Path, float]]:
    found = {}
    for camera in layout.cameras_of(info.features):
        key = layout.IMAGES + camera
        chunk, file = episode[f"videos/{key}/chunk_index"], episode[f"videos/{key}/file_index"]
        path = root / pattern.format(video_key=key, chunk_index=chunk, file_index=file)
        found[camera] = (path, episode[f"videos/{key}/from_timestamp"])
    return found


def _check_rows(rows: Mapping[Path, int]) -> None:
    """Every table is there with as many rows as the episodes want of it."""
    for path, wanted in rows.items():
        found = open_table(path).metadata.num_rows
        if found != wanted:
            raise UsageError(f"{path}: {found} rows, the episodes need {wanted}")


def _files(root: Path, pattern: str) -> Iterator[Path]:
    folder = Path(pattern).parts[:-2]
    paths = sorted(root.joinpath(*folder).glob("*/*.parquet"))
    if not paths:
        raise UsageError(f"{root}: no table in {'/'.join(folder)}")
    yield from paths


def open_table(path: Path) -> "pq.ParquetFile":
    """A Parquet file, mapped into memory.

    Raises:
        UsageError: It is missing or damaged.
    """
    import pyarrow.parquet as pq

    with named(path):
        return pq.ParquetFile(path, memory_map=True)


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Whatever is read within is read of that file; damage is told in one line.

    Raises:
        UsageError: Arrow cannot make sense of the file.
    """
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{path}: cannot be read as Parquet: {reason}") from None


def read_columns(path: Path, columns: list[str]) -> "pa.Table":
    """Some columns of a table.

    Raises:
        UsageError: One is missing or damaged.
    """
    file = open_table(path)
    missing = set(columns) - set(file.schema_arrow.names)
    if missing:
        raise UsageError(f"{path}: no column {min(missing)!r}, which {layout.INFO} promises")
    with named(path):
        return file.read(columns)


def as_array(column: "pa.ChunkedArray", shape: tuple[int, ...]) -> np.ndarray:
    """A column of (nested) lists of equal length as one array, [row, *shape].

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
