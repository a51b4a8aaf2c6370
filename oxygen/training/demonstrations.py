"""Reads demonstrations in LeRobot's layout: columns in memory, images on access or cached as one array."""

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import os
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from configs.errors import UsageError, nearest_first, unknown
from configs.interface import channel_names
from configs.paths import found_near, regular
from oxygen.model.config import Pi05Config
from oxygen.robots.images import squared
from oxygen.robots.transforms import EMBODIMENTS, Prediction
from oxygen.training import layout
from oxygen.training.samples import Samples
from oxygen.typing import Bool, Float32, Int64, UInt8

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_EPISODES_KEPT = 16
"""Episodes whose encoded images are cached in memory."""
_DECODING_ERRORS = (OSError, SyntaxError, ValueError, TypeError, zlib.error)
"""Raised by Pillow for damaged files, and by NumPy for images of unequal size."""
_INFO = ("codebase_version", "fps", "features", "total_episodes", "total_frames", "data_path", "video_path")
_OTHERS = (
    "For datasets not written by `python -m eval.collect`, load episodes yourself and pass them to "
    "`Samples.from_episodes`: docs/training.md has examples for LeRobot and HDF5"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """The simulated episode that a demonstration was recorded in, and its action noise."""

    suite: str
    task_id: int
    init_id: int
    seed: int
    assets: str
    noise: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """All columns but the images. Row `i` is frame `i`.

    Attributes:
        state: Proprioception.
        action: Chunk of the next `horizon` actions.
        padded: Which actions lie beyond the episode's end.
        step: Control step of the frame in its episode.
        frame_index: Number of the frame in its episode.
        episode_index: Number of the episode.
        language: The instruction.
        narration: Text on what is happening; empty if there is none.
        memory: Text on what has happened and the current state; empty if there is none.
        textual_memory: Text on the goals reached; empty if there is none.
        truth: The facts behind narration and memory as JSON; empty if there are none.
        fed: The texts in the policy's prompt as JSON, by field; empty if it read none.
    """

    state: Float32[np.ndarray, "frame state"]
    action: Float32[np.ndarray, "frame horizon action"]
    padded: Bool[np.ndarray, "frame horizon"]
    step: Int64[np.ndarray, " frame"]
    frame_index: Int64[np.ndarray, " frame"]
    episode_index: Int64[np.ndarray, " frame"]
    language: tuple[str, ...]
    narration: tuple[str, ...]
    memory: tuple[str, ...]
    textual_memory: tuple[str, ...]
    truth: tuple[str, ...]
    fed: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frame:
    """One frame with decoded images; see `Columns` for the other fields."""

    images: Mapping[str, UInt8[np.ndarray, "height width 3"]]
    state: Float32[np.ndarray, " state"]
    action: Float32[np.ndarray, "horizon action"]
    padded: Bool[np.ndarray, " horizon"]
    step: int
    frame_index: int
    episode_index: int
    language: str
    narration: str
    memory: str
    textual_memory: str
    truth: Mapping[str, Any] | None
    fed: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeSpan:
    """The frames of one episode, and their location in the dataset's files.

    Attributes:
        start: Index of its first frame in the dataset.
        stop: One past the index of its last frame.
        language: The instruction.
        origin: The simulated episode.
        file: Its table.
        row: Its first row in the table.
        videos: Camera to its video and the episode's start time (s) there; empty without videos.
    """

    start: int
    stop: int
    language: str
    origin: Origin
    file: Path
    row: int
    videos: Mapping[str, tuple[Path, float]]


class Demonstrations:
    """A dataset written by `python -m eval.collect`.

    Columns are read at once (about 500 bytes per frame). `frame` decodes images on access; for training,
    `pixels` decodes all of them once into a memory-mapped file.

    Attributes:
        path: Its folder.
        fps: Frames per second of simulated time.
        cameras: Names of the cameras.
        columns: Everything but the images.
        episodes: The episodes, in order.
    """

    def __init__(self, path: Path | str) -> None:
        """Open a dataset and check it.

        Raises:
            UsageError: Says what is wrong with the folder.
        """
        import pyarrow as pa

        self.path = Path(path)
        info = _read_info(self.path)
        self._features: Mapping[str, Mapping[str, Any]] = info["features"]
        self.fps = float(info["fps"])
        self.cameras = layout.cameras_of(self._features)
        located = _locate_episodes(self.path, info, self.cameras)
        names = [*layout.expected_dtypes(), *({layout.TEXTUAL_MEMORY, layout.FED} & self._features.keys())]
        table = pa.concat_tables(
            [_read_columns(file, names) for file in dict.fromkeys(place["file"] for place in located)]
        )
        if not np.array_equal(table["index"].to_numpy(), np.arange(info["total_frames"])):
            raise UsageError(f"{self.path}: the frames' column 'index' does not count from 0")
        self.columns = self._columns(table)
        origins = {field.name: table[layout.OWN + field.name] for field in dataclasses.fields(Origin)}
        self.episodes = tuple(
            EpisodeSpan(
                **place,
                language=self.columns.language[place["start"]],
                origin=Origin(**{name: column[place["start"]].as_py() for name, column in origins.items()}),
            )
            for place in located
        )
        self._png_rows = functools.lru_cache(maxsize=_EPISODES_KEPT)(self._read_png_rows)
        self._video_frames = functools.lru_cache(maxsize=1)(self._decode_videos)

    def __len__(self) -> int:
        """The number of frames."""
        return len(self.columns.state)

    def check_robot(self, name: str) -> None:
        """Refuse demonstrations of another robot than the embodiment's.

        Raises:
            UsageError: Their states or actions have other channels.
        """
        own = [self._features[column].get("names") or [] for column in (layout.STATE, layout.ACTION)]
        channels = {
            each: [
                channel_names(part)
                for part in (robot.interface.observation.state, robot.interface.action.channels)
            ]
            for each, robot in EMBODIMENTS.items()
            if robot.predicts is not Prediction.VELOCITIES
        }
        if channels.get(name) != own:
            fitting = [each for each, names in channels.items() if names == own]
            raise unknown(
                f"embodiment for {self.path}, which has {', '.join(own[1]) or 'no names of channels'}:",
                name,
                fitting,
            )

    def __iter__(self) -> Iterator[Frame]:
        """All frames in order."""
        return (self.frame(index) for index in range(len(self)))

    def frame(self, index: int) -> Frame:
        """Frame `index` of the dataset, with its images. Reading one frame of a video decodes its episode.

        Raises:
            IndexError: There is no such frame.
            UsageError: An image or its file is damaged.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"frame {index} of {len(self)}")
        row = {field.name: getattr(self.columns, field.name)[index] for field in dataclasses.fields(Columns)}
        row |= {name: int(value) for name, value in row.items() if isinstance(value, np.integer)}
        row["truth"] = json.loads(row["truth"]) if row["truth"] else None
        return Frame(images=dict(zip(self.cameras, self._images(index), strict=True)), **row)

    def pixels(
        self, side: int, resize: str = "pad", *, cache: Path | None = None
    ) -> UInt8[np.ndarray, "frame camera side side 3"]:
        """All images as squares, resized as the policy resizes them, memory-mapped.

        The first call decodes them into a file that later calls and other processes share. Its name contains
        a hash of the episode tables, whose statistics cover every image.

        Args:
            side: Height and width, pixels.
            resize: See `Pi05Config.resize`.
            cache: Folder of that file; `.cache` in the dataset if None.
        """
        digest = hashlib.sha256()
        for table in sorted(self.path.glob("meta/episodes/*/*.parquet")):
            digest.update(table.read_bytes())
        path = (cache or self.path / ".cache") / f"pixels-{side}-{resize}-{digest.hexdigest()[:12]}.npy"
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
                        images = [squared(image, side, resize) for image in self._images(index)]
                        file.write(np.stack(images).tobytes())
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        return np.load(path, mmap_mode="r")

    def samples(self, model: Pi05Config) -> Samples:
        """All frames as training samples, with the images of the model's cameras at its size.

        Raises:
            UsageError: A camera is missing.
        """
        for name in model.cameras:
            if name not in self.cameras:
                raise unknown("camera", name, self.cameras, remedy="The demonstrations have no others.")
        images = self.pixels(model.image_size, model.resize)
        if model.cameras != self.cameras:  # an index would copy the memory map
            images = images[:, [self.cameras.index(name) for name in model.cameras]]
        columns = self.columns
        return Samples(
            images=images,
            state=columns.state,
            actions=columns.action,
            valid=~columns.padded,
            language=columns.language,
            texts={name: getattr(columns, name) for name in ("narration", "memory", "textual_memory")},
            frame_index=columns.frame_index,
            fps=self.fps,
            fed=tuple(map(json.loads, columns.fed)) if all(columns.fed) else None,
        )

    def _columns(self, table: "pa.Table") -> Columns:
        def array(name: str) -> np.ndarray:
            shape = tuple(self._features[name]["shape"])
            return as_array(table[name], () if shape == (1,) else shape)

        def texts(name: str) -> tuple[str, ...]:
            return tuple(table[name].to_pylist()) if name in table.column_names else ("",) * len(table)

        named = _read_columns(self.path / layout.TASKS, ["task_index", "task"])
        tasks = dict(zip(named["task_index"].to_pylist(), named["task"].to_pylist(), strict=True))
        numbers = table["task_index"].to_pylist()
        if missing := set(numbers) - tasks.keys():
            raise UsageError(f"{layout.TASKS} has no task {min(missing)}, which a frame refers to")
        return Columns(
            state=array(layout.STATE),
            action=array(layout.CHUNK),
            padded=array(layout.PADDED),
            step=array(layout.STEP),
            frame_index=array("frame_index"),
            episode_index=array("episode_index"),
            language=tuple(tasks[number] for number in numbers),
            narration=texts(layout.NARRATION),
            memory=texts(layout.MEMORY),
            textual_memory=texts(layout.TEXTUAL_MEMORY),
            truth=texts(layout.TRUTH),
            fed=texts(layout.FED),
        )

    def _images(self, index: int) -> UInt8[np.ndarray, "camera height width 3"]:
        number = int(self.columns.episode_index[index])
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
        """An episode's images. `eval.collect` writes a row group per episode; other writers may not."""
        episode = self.episodes[number]
        columns, frames = [layout.IMAGES + camera for camera in self.cameras], episode.stop - episode.start
        first = 0
        with _opened(episode.file) as file:
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if (first, rows) == (episode.row, frames):
                    return file.read_row_group(group, columns)
                first += rows
            return file.read(columns).slice(episode.row, frames)

    def _decode_videos(self, number: int) -> UInt8[np.ndarray, "frame camera height width 3"]:
        """The images of an episode.

        Raises:
            UsageError: A video is missing, damaged or too short.
        """
        import imageio_ffmpeg

        episode, decoded = self.episodes[number], []
        frames = episode.stop - episode.start
        raw = ["-frames:v", str(frames), "-fps_mode", "passthrough"]
        raw += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
        for camera, (path, start_s) in episode.videos.items():
            shape = frames, *self._features[layout.IMAGES + camera]["shape"]
            seek = f"{max(0.0, start_s - 0.5 / self.fps):.6f}"  # half a frame earlier: stamps are rounded
            command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-ss", seek, "-i", str(path), *raw]
            done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
            if len(done.stdout) != np.prod(shape):
                reason = done.stderr.decode(errors="replace").strip() or "it is too short, or of another size"
                raise UsageError(f"{path}: cannot read {frames} frames from {start_s:.2f} s: {reason}")
            decoded.append(np.frombuffer(done.stdout, np.uint8).reshape(shape))
        return np.stack(decoded, axis=1)


def _read_info(root: Path) -> dict[str, Any]:
    """Read a dataset's `info.json`.

    Raises:
        UsageError: It is missing, of another version, or lacks a required column.
    """
    path = root / layout.INFO
    try:
        content = json.loads(regular(path).read_text(encoding="utf-8"))
        info = {name: content[name] for name in _INFO}
        info["fps"] = float(info["fps"])
    except OSError as error:
        known = [
            info.parents[1] for info in found_near(root, (f"{up}{layout.INFO}" for up in ("", "*/", "*/*/")))
        ]
        advice = f"Collect some: python -m eval.collect --config smoke --output {root}"
        if known:
            advice = f"Nearest: {', '.join(nearest_first(root, known)[:3])}"
        raise UsageError(
            f"{str(root)!r} holds no demonstrations: cannot read {layout.INFO}: {error.strerror}. {advice}"
        ) from None
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: not the info of a LeRobot dataset: {error!r}") from None
    if info["codebase_version"] != layout.VERSION:
        raise UsageError(
            f"{path}: the layout is {info['codebase_version']}; this reads {layout.VERSION}. {_OTHERS}"
        )
    features = info["features"]
    if layout.CHUNK not in features:
        raise UsageError(f"{path}: no column {layout.CHUNK!r} of action chunks; collect again. {_OTHERS}")
    for name, dtype in layout.expected_dtypes().items():
        if name not in features:
            raise UsageError(f"{path}: no column {name!r}; collect again with `python -m eval.collect`")
        if features[name]["dtype"] != dtype:
            raise UsageError(f"{path}: column {name!r} is {features[name]['dtype']}, should be {dtype}")
    kinds = {features[layout.IMAGES + camera]["dtype"] for camera in layout.cameras_of(features)}
    if kinds not in ({"image"}, {"video"}):
        raise UsageError(f"{path}: the cameras are {sorted(kinds)}; all must be image, or all video")
    return info


def _locate_episodes(root: Path, info: Mapping[str, Any], cameras: tuple[str, ...]) -> list[dict[str, Any]]:
    """Start, stop, file, row and videos of every episode, in order.

    Raises:
        UsageError: The episodes are not contiguous, or their totals differ from `info.json`.
    """
    keys = [f"videos/{layout.IMAGES}{camera}" for camera in cameras if info["video_path"] is not None]
    places = [f"{key}/{name}" for key in ("data", *keys) for name in ("chunk_index", "file_index")]
    columns = ["dataset_from_index", "dataset_to_index", *places, *(f"{key}/from_timestamp" for key in keys)]
    episodes: list[dict[str, Any]] = []
    rows: dict[Path, int] = {}
    paths = sorted((root / "meta/episodes").glob("*/*.parquet"))
    if not paths:
        raise UsageError(f"{root}: no table in meta/episodes")
    for path in paths:
        for entry in _read_columns(path, columns).to_pylist():
            start, stop = entry["dataset_from_index"], entry["dataset_to_index"]
            if start != (episodes[-1]["stop"] if episodes else 0) or stop <= start:
                raise UsageError(f"{path}: episode {len(episodes)} has frames {start} to {stop}")

            def located(key: str, pattern: str, entry: Mapping[str, Any] = entry) -> Path:
                place = {name: entry[f"{key}/{name}"] for name in ("chunk_index", "file_index")}
                return root / pattern.format(video_key=key.removeprefix("videos/"), **place)

            file = located("data", info["data_path"])
            videos = {
                camera: (located(key, info["video_path"]), entry[f"{key}/from_timestamp"])
                for camera, key in zip(cameras, keys, strict=False)
            }
            episodes.append(
                {"start": start, "stop": stop, "file": file, "row": rows.get(file, 0), "videos": videos}
            )
            rows[file] = rows.get(file, 0) + stop - start
    frames = episodes[-1]["stop"] if episodes else 0
    if (len(episodes), frames) != (info["total_episodes"], info["total_frames"]):
        raise UsageError(
            f"{root}: {len(episodes)} episodes and {frames} frames, but {layout.INFO} says "
            f"{info['total_episodes']} and {info['total_frames']}"
        )
    for path, expected in rows.items():
        with _opened(path) as file:
            found = file.metadata.num_rows
        if found != expected:
            raise UsageError(f"{path}: {found} rows, the episodes need {expected}")
    return episodes


@contextlib.contextmanager
def _opened(path: Path) -> Iterator["pq.ParquetFile"]:
    """A Parquet file, memory-mapped.

    Raises:
        UsageError: It is missing, or what is read of it is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield pq.ParquetFile(path, memory_map=True)
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{path}: cannot be read as Parquet: {reason}") from None


def _read_columns(path: Path, columns: list[str]) -> "pa.Table":
    """Read some columns of a table.

    Raises:
        UsageError: One is missing or damaged.
    """
    with _opened(path) as file:
        if missing := set(columns) - set(file.schema_arrow.names):
            raise UsageError(f"{path}: no column {min(missing)!r}, which {layout.INFO} lists")
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
