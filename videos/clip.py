"""Reads the frames of a video, and makes a still image or an animated clip of them."""

import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image

from videos.mp4 import VideoError

Picture = UInt8[np.ndarray, "height width 3"]

_QUALITIES = (75, 60, 45, 30, 15)


def iterate_pictures(video: Path) -> Iterator[Picture]:
    """The frames of a video, one after the other; none if the file is not a video."""
    stream = cv2.VideoCapture(str(video))
    try:
        while True:
            there, picture = stream.read()
            if not there:
                return
            yield cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)
    finally:
        stream.release()


def save_still(path: Path, picture: Picture) -> None:
    """Write an image as JPEG, without chroma subsampling, since it is mostly text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path, quality=88, subsampling=0, optimize=True)


def save_clip(
    path: Path, pictures: Sequence[Picture], *, milliseconds: Sequence[int], width: int, most_bytes: int
) -> None:
    """Write images as an endlessly looping animated WebP, at the best quality within a size limit.

    Args:
        path: The file to write; an existing one is replaced.
        pictures: The images, all of one size.
        milliseconds: Duration of each.
        width: Width of the clip, pixels; the height follows.
        most_bytes: Size limit.

    Raises:
        VideoError: It exceeds the limit even at the lowest quality.
    """
    scaled = [_scaled(picture, width) for picture in pictures]
    for quality in _QUALITIES:
        content = _animation(scaled, format="webp", duration=list(milliseconds), quality=quality, method=4)
        if len(content) <= most_bytes:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            return
    raise VideoError(f"{len(pictures)} images of {width}x{scaled[0].height} exceed {most_bytes} bytes")


def to_gif(video: Path, *, fps: float, width: int) -> tuple[bytes, tuple[int, int]]:
    """Convert a video to an endlessly looping GIF.

    Args:
        video: The file.
        fps: Frames per second of the GIF, at most those of the video.
        width: Width of the GIF, pixels, at most that of the video; the height follows.

    Returns:
        The content of a GIF file, and its width and height.

    Raises:
        VideoError: The file is not a video.
    """
    stream = cv2.VideoCapture(str(video))
    rate = stream.get(cv2.CAP_PROP_FPS)
    stream.release()
    every = max(1, round(rate / fps))
    frames = itertools.islice(iterate_pictures(video), 0, None, every)
    kept = [_scaled(picture, min(width, picture.shape[1])) for picture in frames]
    if not kept:
        raise VideoError(f"{video} cannot be read")
    return _animation(kept, format="gif", duration=round(1000 * every / rate)), kept[0].size


def _animation(pictures: Sequence[Image.Image], **options: Any) -> bytes:
    """The content of an endlessly looping file."""
    content = io.BytesIO()
    pictures[0].save(content, save_all=True, append_images=pictures[1:], loop=0, **options)
    return content.getvalue()


def _scaled(picture: Picture, width: int) -> Image.Image:
    size = (width, round(width * picture.shape[0] / picture.shape[1]))
    return Image.fromarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA))
