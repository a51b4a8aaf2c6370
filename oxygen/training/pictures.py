"""Where a frame's images come from: PNG inside the tables, or video; and all decoded once, for training."""

import abc
import functools
import hashlib
import io
import os
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from configs.errors import UsageError
from oxygen.robots.images import squared
from oxygen.training import layout
from oxygen.training.tables import Info, Span, named, open_table
from oxygen.typing import UInt8

if TYPE_CHECKING:
    import pyarrow as pa

_EPISODES_KEPT = 16
"""Episodes whose undecoded images stay in memory."""
_NO_PNG = (OSError, SyntaxError, ValueError, TypeError, zlib.error)
"""What Pillow raises, by what is wrong with a file; and NumPy of images of unequal size, or none."""


class Pictures(abc.ABC):
    """The images of a dataset."""

    def __init__(self, spans: Sequence[Span], cameras: Sequence[str]) -> None:
        """Say where the episodes lie, and which cameras there are."""
        self._spans = spans
        self._cameras = cameras

    @property
    def n_frames(self) -> int:
        """Frames of the dataset."""
        return self._spans[-1].stop if self._spans else 0

    @property
    def n_episodes(self) -> int:
        """Episodes of the dataset."""
        return len(self._spans)

    @abc.abstractmethod
    def episode(self, episode: int) -> UInt8[np.ndarray, "frame camera height width 3"]:
        """The images of an episode's frames."""

    @abc.abstractmethod
    def frame(self, episode: int, index: int) -> UInt8[np.ndarray, "camera height width 3"]:
        """The images of the frame at `index` of the dataset, which is in that episode."""


class PngPictures(Pictures):
    """Images that lie in the tables as PNG files."""

    def __init__(self, spans: Sequence[Span], cameras: Sequence[str]) -> None:
        super().__init__(spans, cameras)
        self._columns = [layout.IMAGES + camera for camera in cameras]
        self._rows = functools.lru_cache(maxsize=_EPISODES_KEPT)(self._read)

    def episode(self, episode: int) -> UInt8[np.ndarray, "frame camera height width 3"]:
        """The images of an episode's frames."""
        span = self._spans[episode]
        return np.stack([self.frame(episode, index) for index in range(span.start, span.stop)])

    def frame(self, episode: int, index: int) -> UInt8[np.ndarray, "camera height width 3"]:
        """The images of one frame.

        Raises:
            UsageError: One is damaged, or its table is.
        """
        span = self._spans[episode]
        row, table = index - span.start, self._rows(episode)
        try:
            return np.stack([_decoded(table[column][row]["bytes"].as_py()) for column in self._columns])
        except _NO_PNG as error:
            raise UsageError(f"{span.file}: an image of frame {index} cannot be decoded: {error}") from None

    def _read(self, episode: int) -> "pa.Table":
        """The rows of an episode. A row group holds an episode; others' tables may be grouped otherwise."""
        span = self._spans[episode]
        file = open_table(span.file)
        first = 0
        with named(span.file):
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if (first, rows) == (span.row, span.stop - span.start):
                    return file.read_row_group(group, self._columns)
                first += rows
            return file.read(self._columns).slice(span.row, span.stop - span.start)


class VideoPictures(Pictures):
    """Images that lie in videos. One costs decoding its episode; `cached_pixels` is for more than a look."""

    def __init__(self, spans: Sequence[Span], info: Info) -> None:
        super().__init__(spans, layout.cameras_of(info.features))
        self._info = info
        self._decoded = functools.lru_cache(maxsize=1)(self._decode)

    def episode(self, episode: int) -> UInt8[np.ndarray, "frame camera height width 3"]:
        """The images of an episode's frames."""
        return self._decoded(episode)

    def frame(self, episode: int, index: int) -> UInt8[np.ndarray, "camera height width 3"]:
        """The images of one frame."""
        return self._decoded(episode)[index - self._spans[episode].start]

    def _decode(self, episode: int) -> UInt8[np.ndarray, "frame camera height width 3"]:
        span = self._spans[episode]
        return np.stack([self._camera(span, camera) for camera in self._cameras], axis=1)

    def _camera(self, span: Span, camera: str) -> UInt8[np.ndarray, "frame height width 3"]:
        height, width, channels = self._info.features[layout.IMAGES + camera]["shape"]
        path, start_s = span.videos[camera]
        shape = (span.stop - span.start, height, width, channels)
        return _decoded_video(path, start_s, fps=self._info.fps, shape=shape)


def _decoded(png: bytes) -> UInt8[np.ndarray, "height width 3"]:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def _decoded_video(
    path: Path, start_s: float, *, fps: float, shape: tuple[int, int, int, int]
) -> UInt8[np.ndarray, "frame height width 3"]:
    """As many frames of a video as the shape says, from a time on.

    Raises:
        UsageError: The video is missing, damaged or too short.
    """
    import imageio_ffmpeg

    seek = f"{max(0.0, start_s - 0.5 / fps):.6f}"  # half a frame earlier, since times are rounded
    raw = ["-frames:v", str(shape[0]), "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-ss", seek, "-i", str(path), *raw]
    done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if len(done.stdout) != np.prod(shape):
        reason = done.stderr.decode(errors="replace").strip() or "it is too short, or of another size"
        raise UsageError(f"{path}: cannot read {shape[0]} frames from {start_s:.2f} s on: {reason}")
    return np.frombuffer(done.stdout, np.uint8).reshape(shape)


def cached_pixels(
    root: Path, pictures: Pictures, side: int, resize: str, folder: Path
) -> UInt8[np.ndarray, "frame camera side side 3"]:
    """All images, [frame, camera, side, side, 3], from a file in `folder` that is made where it is missing.

    Its name says which dataset it is of: the episodes' table is hashed, in which every image has its share.
    """
    path = folder / f"pixels-{side}-{resize}-{_digest(root)}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _decode_all(pictures, side, resize, path)
    return np.load(path, mmap_mode="r")


def _decode_all(pictures: Pictures, side: int, resize: str, path: Path) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    first = pictures.episode(0)
    shape = (pictures.n_frames, first.shape[1], side, side, 3)
    pixels = np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint8, shape=shape)
    row = 0
    for episode in range(pictures.n_episodes):
        for images in pictures.episode(episode):
            pixels[row] = [squared(image, side, resize) for image in images]
            row += 1
    pixels.flush()
    del pixels
    partial.replace(path)


def _digest(root: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(root.glob("meta/episodes/*/*.parquet")):
        total.update(path.read_bytes())
    return total.hexdigest()[:12]
