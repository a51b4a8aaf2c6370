"""Decodes the images of demonstrations, from PNGs in the tables or from videos."""

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
from oxygen.training.tables import EpisodeLocation, Info, arrow_errors, open_table
from oxygen.typing import UInt8

if TYPE_CHECKING:
    import pyarrow as pa

_EPISODES_KEPT = 16
"""Episodes whose encoded images are cached in memory."""
_DECODING_ERRORS = (OSError, SyntaxError, ValueError, TypeError, zlib.error)
"""Raised by Pillow for damaged files, and by NumPy for images of unequal size."""


class FrameImages(abc.ABC):
    """The images of a dataset."""

    def __init__(self, episodes: Sequence[EpisodeLocation]) -> None:
        self.episodes = episodes

    @abc.abstractmethod
    def episode(self, episode: int) -> UInt8[np.ndarray, "frame camera height width 3"]:
        """The images of an episode's frames."""

    def frame(self, episode: int, index: int) -> UInt8[np.ndarray, "camera height width 3"]:
        """The images of frame `index` of the dataset, which lies in `episode`."""
        return self.episode(episode)[index - self.episodes[episode].start]


class PngImages(FrameImages):
    """Images stored in the tables as PNG files."""

    def __init__(self, episodes: Sequence[EpisodeLocation], cameras: Sequence[str]) -> None:
        super().__init__(episodes)
        self._columns = [layout.IMAGES + camera for camera in cameras]
        self._rows = functools.lru_cache(maxsize=_EPISODES_KEPT)(self._read)

    def episode(self, episode: int) -> UInt8[np.ndarray, "frame camera height width 3"]:
        """The images of an episode's frames."""
        stored = self.episodes[episode]
        return np.stack([self.frame(episode, index) for index in range(stored.start, stored.stop)])

    def frame(self, episode: int, index: int) -> UInt8[np.ndarray, "camera height width 3"]:
        """The images of one frame.

        Raises:
            UsageError: An image or the table is damaged.
        """
        stored = self.episodes[episode]
        row, table = index - stored.start, self._rows(episode)
        try:
            return np.stack([_decode_png(table[column][row]["bytes"].as_py()) for column in self._columns])
        except _DECODING_ERRORS as error:
            raise UsageError(f"{stored.file}: an image of frame {index} cannot be decoded: {error}") from None

    def _read(self, episode: int) -> "pa.Table":
        """The rows of an episode. `eval.collect` writes one row group per episode; other writers may not."""
        stored = self.episodes[episode]
        file = open_table(stored.file)
        first = 0
        with arrow_errors(stored.file):
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if (first, rows) == (stored.row, stored.stop - stored.start):
                    return file.read_row_group(group, self._columns)
                first += rows
            return file.read(self._columns).slice(stored.row, stored.stop - stored.start)


class VideoImages(FrameImages):
    """Images stored in videos. Reading one frame decodes its episode; use `cached_pixels` for many."""

    def __init__(self, episodes: Sequence[EpisodeLocation], info: Info) -> None:
        super().__init__(episodes)
        self._info = info
        self._decoded = functools.lru_cache(maxsize=1)(self._decode)

    def episode(self, episode: int) -> UInt8[np.ndarray, "frame camera height width 3"]:
        """The images of an episode's frames."""
        return self._decoded(episode)

    def _decode(self, episode: int) -> UInt8[np.ndarray, "frame camera height width 3"]:
        stored, decoded = self.episodes[episode], []
        for camera, (path, start_s) in stored.videos.items():
            shape = stored.stop - stored.start, *self._info.features[layout.IMAGES + camera]["shape"]
            decoded.append(_decode_video(path, start_s, fps=self._info.fps, shape=shape))
        return np.stack(decoded, axis=1)


def _decode_png(png: bytes) -> UInt8[np.ndarray, "height width 3"]:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def _decode_video(
    path: Path, start_s: float, *, fps: float, shape: tuple[int, ...]
) -> UInt8[np.ndarray, "frame height width 3"]:
    """Decode `shape[0]` frames of a video, from a start time.

    Raises:
        UsageError: The video is missing, damaged or too short.
    """
    import imageio_ffmpeg

    seek = f"{max(0.0, start_s - 0.5 / fps):.6f}"  # half a frame earlier: time stamps are rounded
    raw = ["-frames:v", str(shape[0]), "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-ss", seek, "-i", str(path), *raw]
    done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if len(done.stdout) != np.prod(shape):
        reason = done.stderr.decode(errors="replace").strip() or "it is too short, or of another size"
        raise UsageError(f"{path}: cannot read {shape[0]} frames from {start_s:.2f} s: {reason}")
    return np.frombuffer(done.stdout, np.uint8).reshape(shape)


def cached_pixels(
    root: Path, images: FrameImages, side: int, resize: str, folder: Path
) -> UInt8[np.ndarray, "frame camera side side 3"]:
    """All images, [frame, camera, side, side, 3], memory-mapped from a file created in `folder` if missing.

    The file name contains a hash of the episode tables, whose statistics cover every image.
    """
    path = folder / f"pixels-{side}-{resize}-{_digest(root)}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _decode_all(images, side, resize, path)
    return np.load(path, mmap_mode="r")


def _decode_all(images: FrameImages, side: int, resize: str, path: Path) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    shape = (images.episodes[-1].stop, images.episode(0).shape[1], side, side, 3)
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    try:
        with partial.open("wb") as file:  # not memory-mapped: a full disk would be a SIGBUS
            np.lib.format.write_array_header_1_0(file, header)
            for episode in range(len(images.episodes)):
                for frame in images.episode(episode):
                    file.write(np.stack([squared(image, side, resize) for image in frame]).tobytes())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _digest(root: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(root.glob("meta/episodes/*/*.parquet")):
        total.update(path.read_bytes())
    return total.hexdigest()[:12]
