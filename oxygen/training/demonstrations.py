"""Reads demonstrations: columns in memory, images decoded on access or cached as one array."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import UsageError, unknown
from oxygen.model.config import Pi05Config
from oxygen.training import layout
from oxygen.training.frame_images import FrameImages, PngImages, VideoImages, cached_pixels
from oxygen.training.samples import Samples
from oxygen.training.tables import as_array, read_columns, read_episodes, read_info
from oxygen.typing import Bool, Float32, Int64, UInt8


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeSpan:
    """The frames of one episode: `start` to `stop` (exclusive) of the dataset."""

    index: int
    start: int
    stop: int
    language: str
    origin: Origin


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
        info = read_info(self.path)
        stored = read_episodes(self.path, info)
        self.fps = info.fps
        self.cameras = layout.cameras_of(info.features)
        names = [*layout.expected_dtypes(), *({layout.TEXTUAL_MEMORY, layout.FED} & info.features.keys())]
        files = dict.fromkeys(episode.file for episode in stored)
        table = pa.concat_tables([read_columns(file, names) for file in files])
        if not np.array_equal(table["index"].to_numpy(), np.arange(info.total_frames)):
            raise UsageError(f"{self.path}: the frames' column 'index' does not count from 0")
        language = _instructions(self.path, table["task_index"].to_pylist())
        self.columns = _columns(table, info.features, language)
        self.episodes = tuple(
            EpisodeSpan(
                index=number,
                start=episode.start,
                stop=episode.stop,
                language=self.columns.language[episode.start],
                origin=_origin(table, episode.start),
            )
            for number, episode in enumerate(stored)
        )
        self._images: FrameImages = (
            PngImages(stored, self.cameras) if info.video_path is None else VideoImages(stored, info)
        )

    def __len__(self) -> int:
        """The number of frames."""
        return len(self.columns.state)

    def __iter__(self) -> Iterator[Frame]:
        """All frames in order."""
        return (self.frame(index) for index in range(len(self)))

    def frame(self, index: int) -> Frame:
        """Frame `index` of the dataset, with its images.

        Raises:
            IndexError: There is no such frame.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"frame {index} of {len(self)}")
        images = self._images.frame(int(self.columns.episode_index[index]), index)
        columns = self.columns
        return Frame(
            images=dict(zip(self.cameras, images, strict=True)),
            state=columns.state[index],
            action=columns.action[index],
            padded=columns.padded[index],
            step=int(columns.step[index]),
            frame_index=int(columns.frame_index[index]),
            episode_index=int(columns.episode_index[index]),
            language=columns.language[index],
            narration=columns.narration[index],
            memory=columns.memory[index],
            textual_memory=columns.textual_memory[index],
            truth=json.loads(columns.truth[index]) if columns.truth[index] else None,
        )

    def frames(self, episode: int) -> Iterator[Frame]:
        """The frames of one episode, in order."""
        span = self.episodes[episode]
        return (self.frame(index) for index in range(span.start, span.stop))

    def pixels(
        self, side: int, resize: str = "pad", *, cache: Path | None = None
    ) -> UInt8[np.ndarray, "frame camera side side 3"]:
        """All images as squares, resized as the policy resizes them, memory-mapped.

        The first call decodes them into a file that later calls and other processes share.

        Args:
            side: Height and width, pixels.
            resize: See `Pi05Config.resize`.
            cache: Folder of that file; `.cache` in the dataset if None.
        """
        return cached_pixels(self.path, self._images, side, resize, cache or self.path / ".cache")

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
            texts={
                "narration": columns.narration,
                "memory": columns.memory,
                "textual_memory": columns.textual_memory,
            },
            frame_index=columns.frame_index,
            fps=self.fps,
            fed=tuple(map(json.loads, columns.fed)) if all(columns.fed) else None,
        )


def _columns(table: Any, features: Mapping[str, Mapping[str, Any]], language: tuple[str, ...]) -> Columns:
    def array(name: str) -> np.ndarray:
        shape = tuple(features[name]["shape"])
        return as_array(table[name], () if shape == (1,) else shape)

    def optional(name: str) -> tuple[str, ...]:
        known = name in table.column_names
        return tuple(table[name].to_pylist()) if known else ("",) * len(table)

    return Columns(
        state=array(layout.STATE),
        action=array(layout.CHUNK),
        padded=array(layout.PADDED),
        step=array(layout.STEP),
        frame_index=array("frame_index"),
        episode_index=array("episode_index"),
        language=language,
        narration=tuple(table[layout.NARRATION].to_pylist()),
        memory=tuple(table[layout.MEMORY].to_pylist()),
        textual_memory=optional(layout.TEXTUAL_MEMORY),
        truth=tuple(table[layout.TRUTH].to_pylist()),
        fed=optional(layout.FED),
    )


def _instructions(root: Path, task_indices: list[int]) -> tuple[str, ...]:
    table = read_columns(root / layout.TASKS, ["task_index", "task"])
    tasks = dict(zip(table["task_index"].to_pylist(), table["task"].to_pylist(), strict=True))
    if missing := set(task_indices) - tasks.keys():
        raise UsageError(f"{layout.TASKS} has no task {min(missing)}, which a frame refers to")
    return tuple(tasks[index] for index in task_indices)


def _origin(table: Any, row: int) -> Origin:
    names = [field.name for field in dataclasses.fields(Origin)]
    return Origin(**{name: table[layout.OWN + name][row].as_py() for name in names})
