"""Demonstrations as arrays: whole columns in memory, images decoded when asked for, or once for all."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import UsageError
from oxygen.training import layout
from oxygen.training.pictures import Pictures, PngPictures, VideoPictures, cached_pixels
from oxygen.training.tables import as_array, read_columns, read_info, read_spans
from oxygen.typing import Bool, Float32, Int64, UInt8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Which episode of which world a demonstration is, and what disturbed it."""

    suite: str
    task_id: int
    init_id: int
    seed: int
    assets: str
    noise: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """All frames' numbers and texts, in memory. Row `i` is frame `i`.

    Attributes:
        state: Proprioception.
        action: What the next `horizon` control steps should do.
        padded: Where the episode ended sooner, so that the action means nothing.
        step: Control step of the episode at which the frame was seen.
        frame_index: Number of the frame in its episode.
        episode_index: Number of the episode.
        language: The instruction.
        narration: What is going on, in words; empty where nobody knows.
        memory: What has happened and how things stand, in words; empty where nobody knows.
        truth: The same as JSON; empty where nobody knows.
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
    truth: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frame:
    """One frame, images decoded. See `Columns` for the rest."""

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
    truth: Mapping[str, Any] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Episode:
    """Where an episode's frames are: `start` to `stop` (exclusive) in the dataset's order."""

    index: int
    start: int
    stop: int
    language: str
    origin: Origin


class Demonstrations:
    """A dataset that `python -m eval.collect` wrote, opened for reading.

    Numbers and texts are read at once (half a kilobyte per frame). A frame's images are decoded when it is
    asked for; for training, `pixels` decodes all of them once into a file that is mapped into memory.

    Attributes:
        path: Its folder.
        fps: Frames per second of simulated time.
        cameras: Names of the cameras.
        columns: Everything but the images.
        episodes: The episodes, in order.
    """

    def __init__(self, path: Path | str) -> None:
        """Open and check.

        Raises:
            UsageError: Says what is wrong with the folder.
        """
        self.path = Path(path)
        info = read_info(self.path)
        spans = read_spans(self.path, info)
        self.fps = info.fps
        self.cameras = layout.cameras_of(info.features)
        names = [*layout.expected_dtypes()]
        tables = [read_columns(file, names) for file in dict.fromkeys(span.file for span in spans)]
        table = _concatenated(tables)
        if not np.array_equal(table["index"].to_numpy(), np.arange(info.total_frames)):
            raise UsageError(f"{self.path}: the frames' column 'index' does not count from 0")
        tasks = _read_tasks(self.path)
        self.columns = _columns(table, info.features, tasks)
        self.episodes = tuple(
            Episode(
                index=number,
                start=span.start,
                stop=span.stop,
                language=self.columns.language[span.start],
                origin=_origin(table, span.start),
            )
            for number, span in enumerate(spans)
        )
        self._pictures: Pictures = (
            PngPictures(spans, self.cameras) if info.video_path is None else VideoPictures(spans, info)
        )

    def __len__(self) -> int:
        """The number of frames."""
        return len(self.columns.state)

    def __iter__(self) -> Iterator[Frame]:
        """All frames in order."""
        return (self.frame(index) for index in range(len(self)))

    def frame(self, index: int) -> Frame:
        """The frame at `index`, counted over all episodes, with its images.

        Raises:
            IndexError: There is no such frame.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"frame {index} of {len(self)}")
        images = self._pictures.frame(int(self.columns.episode_index[index]), index)
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
            truth=json.loads(columns.truth[index]) if columns.truth[index] else None,
        )

    def frames(self, episode: int) -> Iterator[Frame]:
        """The frames of one episode, in order."""
        where = self.episodes[episode]
        return (self.frame(index) for index in range(where.start, where.stop))

    def pixels(
        self, side: int, resize: str = "pad", *, cache: Path | None = None
    ) -> UInt8[np.ndarray, "frame camera side side 3"]:
        """Every frame's images, resized into a square as the policy resizes them, mapped into memory.

        Decoded at the first call, into a file that later calls and other processes share.

        Args:
            side: Height and width, pixels.
            resize: As a model's `resize` has it.
            cache: The folder of that file; `.cache` in the dataset if None.
        """
        return cached_pixels(self.path, self._pictures, side, resize, cache or self.path / ".cache")


def _concatenated(tables: list[Any]) -> Any:
    import pyarrow as pa

    return pa.concat_tables(tables)


def _columns(table: Any, features: Mapping[str, Mapping[str, Any]], tasks: Mapping[int, str]) -> Columns:
    def array(name: str) -> np.ndarray:
        shape = tuple(features[name]["shape"])
        return as_array(table[name], () if shape == (1,) else shape)

    return Columns(
        state=array(layout.STATE),
        action=array(layout.ACTION),
        padded=array(layout.PADDED),
        step=array(layout.STEP),
        frame_index=array("frame_index"),
        episode_index=array("episode_index"),
        language=tuple(_named(tasks, index) for index in table["task_index"].to_pylist()),
        narration=tuple(table[layout.NARRATION].to_pylist()),
        memory=tuple(table[layout.MEMORY].to_pylist()),
        truth=tuple(table[layout.TRUTH].to_pylist()),
    )


def _read_tasks(root: Path) -> dict[int, str]:
    table = read_columns(root / layout.TASKS, ["task_index", "task"])
    return dict(zip(table["task_index"].to_pylist(), table["task"].to_pylist(), strict=True))


def _named(tasks: Mapping[int, str], index: int) -> str:
    if index not in tasks:
        raise UsageError(f"{layout.TASKS} has no task {index}, which a frame refers to")
    return tasks[index]


def _origin(table: Any, row: int) -> Origin:
    def at(name: str) -> Any:
        return table[name][row].as_py()

    return Origin(
        suite=at(layout.SUITE),
        task_id=at(layout.TASK_ID),
        init_id=at(layout.INIT_ID),
        seed=at(layout.SEED),
        assets=at(layout.ASSETS),
        noise=at(layout.NOISE),
    )
