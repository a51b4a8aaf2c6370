"""Writes cameras as videos: episodes one after the other, a new file when one is full."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from oxygen.training import layout
from videos.mp4 import Mp4Writer

_SHRINKS = 8
"""Minimum ratio of PNG to video size (measured: 30). The size of the video being written depends on the state
of the encoder, and an episode's position must not."""


class VideoFiles:
    """A video per camera. All start new files at the same episodes."""

    def __init__(self, root: Path, cameras: Sequence[str], fps: float) -> None:
        self._files = {camera: _VideoFile(root, layout.IMAGES + camera, fps) for camera in cameras}
        self._fps = fps

    def add(self, rows: pa.Table) -> dict[str, Any]:
        """Append an episode's images; returns their positions, as columns of the episodes' table."""
        found: dict[str, Any] = {}
        for camera, file in self._files.items():
            found |= file.add(rows[layout.IMAGES + camera])
        return found

    def close(self) -> None:
        """Finish the files."""
        for file in self._files.values():
            file.close()

    def describe(self, shape: Sequence[int]) -> dict[str, Any]:
        """The description in `info.json` of a video with images of this shape."""
        return {
            "video.height": shape[0],
            "video.width": shape[1],
            "video.channels": shape[2],
            "video.codec": "h264",
            "video.pix_fmt": "yuv420p",
            "video.fps": self._fps,
            "video.is_depth_map": False,
            "has_audio": False,
        }


class _VideoFile:
    """The files of one camera."""

    def __init__(self, root: Path, key: str, fps: float) -> None:
        self._root = root
        self._key = key
        self._fps = fps
        self._number = self._frames = self._bytes = 0
        self._writer: Mp4Writer | None = None

    def add(self, cells: pa.ChunkedArray) -> dict[str, Any]:
        if self._bytes > _SHRINKS * layout.VIDEO_FILE_MB * 2**20:
            self.close()
            self._number += 1
            self._frames = self._bytes = 0
        start = self._frames / self._fps
        for cell in cells:
            png = cell["bytes"].as_py()
            image = np.asarray(Image.open(io.BytesIO(png)))
            if self._writer is None:
                path = self._root / layout.VIDEO.format(video_key=self._key, **layout.place(self._number))
                path.parent.mkdir(parents=True, exist_ok=True)
                height, width = image.shape[:2]
                self._writer = Mp4Writer(path, width=width, height=height, fps=self._fps)
            self._writer.write(image)
            self._frames += 1
            self._bytes += len(png)
        place = {
            **layout.place(self._number),
            "from_timestamp": start,
            "to_timestamp": self._frames / self._fps,
        }
        return {f"videos/{self._key}/{name}": value for name, value in place.items()}

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
