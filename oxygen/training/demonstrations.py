"""Reads demonstrations in LeRobot's layout: columns in memory, images on access or cached as one array."""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import io
import json
import os
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from configs.errors import check
from configs.paths import absolute, found_near, parse_json, regular, shown
from contracts.errors import UsageError, nearest_first, unknown
from contracts.interface import channel_names
from oxygen.model.config import Pi05Config
from oxygen.robots.images import resized
from oxygen.robots.transforms import EMBODIMENTS, Prediction
from oxygen.training import layout
from oxygen.training.samples import Samples
from oxygen.typing import UInt8

if TYPE_CHECKING:
    import pyarrow as pa

_EPISODES_KEPT = 16  # episodes whose encoded images are cached in memory
_DECODING_ERRORS = (OSError, SyntaxError, ValueError, TypeError, zlib.error)
"""Raised by Pillow for damaged files, and by NumPy for images of unequal size."""
_OTHERS = (
    "For datasets not written by `oxygen-eval collect`, load episodes yourself and pass them to "
    "`Samples.from_episodes`: docs/training.md has examples for LeRobot and HDF5"
)


class _Feature(TypedDict):
    dtype: str
    shape: list[int]
    names: NotRequired[list[str] | dict[str, Any] | None]


class _Info(TypedDict):
    """The fields of a dataset's `info.json` that are read."""

    codebase_version: str
    fps: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    features: dict[str, _Feature]
    total_episodes: int
    total_frames: int
    data_path: str
    video_path: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeSpan:
    """The frames of one episode, and where they are stored."""

    start: int  # index of its first frame in the dataset
    stop: int  # one past the index of its last frame
    file: Path  # its table
    # Camera to its video and the episode's start time (s) there; empty without videos.
    videos: Mapping[str, tuple[Path, float]]


class Demonstrations:
    """A dataset written by `oxygen-eval collect`.

    Columns are read at once (about 500 bytes per frame). An index decodes a frame's images; for training,
    `pixels` decodes all of them once into a memory-mapped file.

    Attributes:
        path: Its folder.
        fps: Frames per second of simulated time.
        cameras: Names of the cameras.
        columns: Column to its values in all frames, an array or a tuple of texts: those of the tables but the
            images (see `layout`), and the instruction as `task`.
        episodes: The episodes, in order.
    """

    def __init__(self, path: Path | str) -> None:
        """Open a dataset and check it; a UsageError says what is wrong with the folder."""
        import pyarrow as pa

        self.path = absolute(path)
        info = _read_info(self.path)
        self._features, self.fps = info["features"], info["fps"]
        self.cameras = layout.cameras_of(self._features)
        self.episodes = _locate_episodes(self.path, info, self.cameras)
        names = [name for name in layout.COLUMNS if name in self._features]
        files = dict.fromkeys(episode.file for episode in self.episodes)
        table = pa.concat_tables([_read_columns(file, names) for file in files])
        if not np.array_equal(table["index"].to_numpy(), np.arange(info["total_frames"])):
            raise UsageError(f"{self.path}: the frames' column 'index' does not count from 0 to their number")
        named = _read_columns(self.path / layout.TASKS, ["task_index", layout.LANGUAGE])
        tasks = dict(zip(*(column.to_pylist() for column in named), strict=True))
        numbers = table["task_index"].to_pylist()
        if missing := set(numbers) - tasks.keys():
            raise UsageError(f"{layout.TASKS} has no task {min(missing)}, which a frame refers to")
        self.columns: dict[str, Any] = {layout.LANGUAGE: tuple(tasks[number] for number in numbers)}
        for name in names:
            shape = tuple(self._features[name]["shape"])
            is_text = layout.COLUMNS[name] == "string"
            self.columns[name] = (
                tuple(table[name].to_pylist())
                if is_text
                else as_array(table[name], () if shape == (1,) else shape)
            )
        self._png_rows = functools.lru_cache(maxsize=_EPISODES_KEPT)(self._read_png_rows)
        self._video_frames = functools.lru_cache(maxsize=1)(self._decode_videos)

    def __len__(self) -> int:
        return len(self.columns["index"])

    def check_robot(self, name: str) -> None:
        """Refuse demonstrations whose states or actions have other channels than the embodiment's."""
        channels = [self._features[column].get("names") or [] for column in (layout.STATE, layout.ACTION)]
        fitting = [
            known
            for known, robot in EMBODIMENTS.items()
            if robot.predicts is not Prediction.VELOCITIES
            and channels
            == [*map(channel_names, (robot.interface.observation.state, robot.interface.action.channels))]
        ]
        if name not in fitting:
            actions = ", ".join(channels[1]) or "no names of channels"
            raise unknown(f"embodiment for {self.path}, which has {actions}:", name, fitting)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A frame: its value of every column, and the image [height, width, 3] of every camera's column.

        Reading one frame of a video decodes its episode. A frame that does not exist is an IndexError, a
        damaged image a UsageError.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"frame {index} of {len(self)}")
        images = zip(self.cameras, self._images(index), strict=True)
        frame = {layout.IMAGES + camera: image for camera, image in images}
        return frame | {name: column[index] for name, column in self.columns.items()}

    def pixels(self, side: int, resize: str = "pad") -> UInt8[np.ndarray, "frame camera side side 3"]:
        """All images as squares, resized as the policy resizes them, memory-mapped.

        The first call decodes them into a file in the dataset's `.cache` that later calls and other processes
        share. Its name contains a hash of the episode tables, whose statistics cover every image.
        """
        digest = hashlib.sha256()
        for table in sorted(self.path.glob("meta/episodes/*/*.parquet")):
            digest.update(table.read_bytes())
        path = self.path / ".cache" / f"pixels-{side}-{resize}-{digest.hexdigest()[:12]}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(f".{os.getpid()}.partial")
            shape = (len(self), len(self.cameras), side, side, 3)
            try:
                with partial.open("wb") as file:  # not memory-mapped: a full disk would be a SIGBUS
                    np.lib.format.write_array_header_1_0(
                        file, {"descr": "|u1", "fortran_order": False, "shape": shape}
                    )
                    for index in range(len(self)):
                        images = [resized(image, side, resize) for image in self._images(index)]
                        file.write(np.stack(images).tobytes())
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        try:
            return np.load(path, mmap_mode="r")
        except OSError as error:
            if error.errno != errno.ENODEV:  # of a file system that maps no files
                raise
            return np.load(path)

    def samples(self, model: Pi05Config) -> Samples:
        """All frames as training samples, with the images of the model's cameras at its size."""
        for name in model.cameras:
            if name not in self.cameras:
                raise unknown("camera", name, self.cameras, remedy="The demonstrations have no others.")
        images = self.pixels(model.image_size, model.resize)
        if model.cameras != self.cameras:  # an index would copy the memory map
            images = images[:, [self.cameras.index(name) for name in model.cameras]]
        columns = self.columns
        fed = columns.get(layout.FED, ("",))
        return Samples(
            images=(images,),
            state=columns[layout.STATE],
            actions=columns[layout.CHUNK],
            valid=~columns[layout.PADDED],
            language=columns[layout.LANGUAGE],
            texts={task: columns[column] for column, task in layout.TEXTS.items()},
            frame_index=columns["frame_index"],
            fps=self.fps,
            fed=tuple(map(json.loads, fed)) if all(fed) else None,
        )

    def _images(self, index: int) -> UInt8[np.ndarray, "camera height width 3"]:
        number = int(self.columns["episode_index"][index])
        episode = self.episodes[number]
        row = index - episode.start
        if episode.videos:
            return self._video_frames(number)[row]
        from PIL import Image

        table = self._png_rows(number)
        try:
            cells = [table[layout.IMAGES + camera][row]["bytes"].as_py() for camera in self.cameras]
            return np.stack([np.asarray(Image.open(io.BytesIO(png)).convert("RGB")) for png in cells])
        except _DECODING_ERRORS as error:
            raise UsageError(
                f"{episode.file}: an image of frame {index} cannot be decoded: {error}"
            ) from None

    def _read_png_rows(self, number: int) -> "pa.Table":
        """An episode's images. The filter skips the row groups of other episodes."""
        import pyarrow.dataset

        columns, episode = [layout.IMAGES + camera for camera in self.cameras], self.episodes[number]
        with readable_table(episode.file):
            table = pyarrow.dataset.dataset(episode.file)
            return table.to_table(columns, filter=pyarrow.dataset.field("episode_index") == number)

    def _decode_videos(self, number: int) -> UInt8[np.ndarray, "frame camera height width 3"]:
        """The images of an episode, whose videos may be missing, damaged or too short."""
        import imageio_ffmpeg

        episode, decoded = self.episodes[number], []
        frames = episode.stop - episode.start
        raw = ["-frames:v", str(frames), "-fps_mode", "passthrough"]
        raw += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
        for camera, (path, start_s) in episode.videos.items():
            shape = frames, *self._features[layout.IMAGES + camera]["shape"]
            seek = f"{max(0.0, start_s - 0.5 / self.fps):.6f}"  # half a frame earlier: stamps are rounded
            source = ["-ss", seek, "-i", f"file:{path}"]  # whatever characters the path has
            command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *source, *raw]
            done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
            if len(done.stdout) != np.prod(shape):
                reason = done.stderr.decode(errors="replace").strip() or "it is too short, or of another size"
                raise UsageError(f"{path}: cannot read {frames} frames from {start_s:.2f} s: {reason}")
            decoded.append(np.frombuffer(done.stdout, np.uint8).reshape(shape))
        return np.stack(decoded, axis=1)


def _read_info(root: Path) -> _Info:
    """A dataset's `info.json`, if it is of the right version and has all columns."""
    path = root / layout.INFO
    try:
        content = regular(path).read_bytes()
    except OSError as error:
        known = [
            info.parents[1] for info in found_near(root, (f"{up}{layout.INFO}" for up in ("", "*/", "*/*/")))
        ]
        advice = f"Collect some: oxygen-eval collect --config smoke --output {shown(root)}"
        if known:
            advice = f"Nearest: {', '.join(nearest_first(root, known)[:3])}"
        raise UsageError(
            f"{shown(root)!r} holds no demonstrations: cannot read {layout.INFO}: {error.strerror}. {advice}"
        ) from None
    source = f"{path}: not the info of a LeRobot dataset"
    info = check(_Info, parse_json(content, source), source=source)
    if info["codebase_version"] != layout.VERSION:
        raise UsageError(
            f"{path}: the layout is {info['codebase_version']}; this reads {layout.VERSION}. {_OTHERS}"
        )
    features = info["features"]
    if layout.CHUNK not in features:
        raise UsageError(f"{path}: no column {layout.CHUNK!r} of action chunks; collect again. {_OTHERS}")
    for name, dtype in layout.COLUMNS.items():
        if name not in features and name != layout.FED:
            raise UsageError(f"{path}: no column {name!r}; collect again with `oxygen-eval collect`")
        if name in features and features[name]["dtype"] != dtype:
            raise UsageError(f"{path}: column {name!r} is {features[name]['dtype']}, should be {dtype}")
    kinds = {features[layout.IMAGES + camera]["dtype"] for camera in layout.cameras_of(features)}
    if kinds not in ({"image"}, {"video"}):
        raise UsageError(f"{path}: the cameras are {sorted(kinds)}; all must be image, or all video")
    return info


def _locate_episodes(root: Path, info: _Info, cameras: tuple[str, ...]) -> tuple[EpisodeSpan, ...]:
    """All episodes, in order, if they are contiguous and as many as in `info.json`."""
    keys = [f"videos/{layout.IMAGES}{camera}" for camera in cameras if info["video_path"] is not None]
    place = ("chunk_index", "file_index")
    columns = ["dataset_from_index", "dataset_to_index", *(f"{key}/from_timestamp" for key in keys)]
    columns += [f"{key}/{name}" for key in ("data", *keys) for name in place]
    paths = sorted((root / "meta/episodes").glob("*/*.parquet"))
    if not paths:
        raise UsageError(f"{root}: no table in meta/episodes")

    def file_of(entry: Mapping[str, Any], key: str, pattern: str) -> Path:
        numbers = {name: entry[f"{key}/{name}"] for name in place}
        return root / pattern.format(video_key=key.removeprefix("videos/"), **numbers)

    episodes: list[EpisodeSpan] = []
    frames = 0
    for path in paths:
        for entry in _read_columns(path, columns).to_pylist():
            start, stop = entry["dataset_from_index"], entry["dataset_to_index"]
            if start != frames or stop <= start:
                raise UsageError(f"{path}: episode {len(episodes)} has frames {start} to {stop}")
            videos = {
                camera: (file_of(entry, key, str(info["video_path"])), entry[f"{key}/from_timestamp"])
                for camera, key in zip(cameras, keys, strict=False)
            }
            file = file_of(entry, "data", info["data_path"])
            episodes.append(EpisodeSpan(start=start, stop=stop, file=file, videos=videos))
            frames = stop
    if (len(episodes), frames) != (info["total_episodes"], info["total_frames"]):
        raise UsageError(
            f"{root}: {len(episodes)} episodes and {frames} frames, but {layout.INFO} says "
            f"{info['total_episodes']} and {info['total_frames']}"
        )
    return tuple(episodes)


@contextlib.contextmanager
def readable_table(path: Path) -> Iterator[None]:
    """Refuses a Parquet file that is missing or damaged, in one line."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{path}: cannot be read as Parquet: {reason}") from None


def _read_columns(path: Path, columns: list[str]) -> "pa.Table":
    """Some columns of a table, none of which may be missing or damaged."""
    import pyarrow.parquet as pq

    with readable_table(path):
        file = pq.ParquetFile(path, memory_map=True)
        if missing := set(columns) - set(file.schema_arrow.names):
            raise UsageError(f"{path}: no column {min(missing)!r}, which {layout.INFO} lists")
        return file.read(columns)


def as_array(column: "pa.ChunkedArray", shape: tuple[int, ...]) -> np.ndarray:
    """Convert a column of (nested) lists to an array, [row, *shape]; refuses lists of other lengths."""
    import pyarrow as pa

    values = column.combine_chunks()
    while isinstance(values, pa.ListArray | pa.FixedSizeListArray):
        values = values.flatten()
    if len(values) != len(column) * int(np.prod(shape)):
        raise UsageError(f"a column holds {len(values)} numbers in {len(column)} rows of shape {shape}")
    return values.to_numpy(zero_copy_only=False).reshape(len(column), *shape)
