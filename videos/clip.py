"""Pictures taken out of a video again: one as a still, many as a clip that plays by itself on a page."""

import io
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image

from videos.mp4 import VideoError

Picture = UInt8[np.ndarray, "height width 3"]

_QUALITIES = (75, 60, 45, 30, 15)


def read_pictures(video: Path, frames: Sequence[int]) -> list[Picture]:
    """The video's pictures at those frames, which count from 0 and ascend.

    Raises:
        VideoError: if the file is no video, or has fewer frames.
    """
    found: list[Picture] = []
    stream = cv2.VideoCapture(str(video))
    try:
        for frame in range(max(frames) + 1):
            there, picture = stream.read()
            if not there:
                raise VideoError(f"{video} cannot be read as far as its frame {max(frames)}, only to {frame}")
            if frame in frames:
                found.append(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB))
    finally:
        stream.release()
    return found


def save_still(path: Path, picture: Picture) -> None:
    """Write one picture as JPEG, colours unsubsampled: it is mostly text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path, quality=88, subsampling=0, optimize=True)


def save_clip(
    path: Path, pictures: Sequence[Picture], *, milliseconds: Sequence[int], width: int, most_bytes: int
) -> None:
    """Write pictures as an animated WebP that repeats for ever, at the best quality that is small enough.

    Args:
        path: The file to write; an existing one is replaced.
        pictures: All of one size.
        milliseconds: How long each stands.
        width: Of the clip, pixels; its height follows.
        most_bytes: Its size at most.

    Raises:
        VideoError: if it is larger even at the lowest quality.
    """
    height = round(width * pictures[0].shape[0] / pictures[0].shape[1])
    scaled = [
        Image.fromarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA))
        for picture in pictures
    ]
    for quality in _QUALITIES:
        content = io.BytesIO()
        scaled[0].save(
            content,
            format="webp",
            save_all=True,
            append_images=scaled[1:],
            duration=list(milliseconds),
            loop=0,
            quality=quality,
            method=4,
        )
        if content.tell() <= most_bytes:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.getvalue())
            return
    raise VideoError(f"{len(pictures)} pictures of {width}x{height} are more than {most_bytes} bytes")
