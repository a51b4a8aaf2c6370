"""Frames read from a video are those written; a clip keeps its size limit and durations."""

import io

import numpy as np
import pytest
from PIL import Image, ImageSequence

from videos.mp4 import Mp4Writer, VideoError, iterate_pictures, save_clip, to_gif

LEVELS = (20, 80, 140, 200)


def grey(level: int) -> np.ndarray:
    return np.full((48, 64, 3), level, np.uint8)


@pytest.fixture
def video(tmp_path):
    """Four pictures, each five frames long."""
    path = tmp_path / "video.mp4"
    writer = Mp4Writer(path, width=64, height=48, fps=20.0)
    for level in LEVELS:
        writer.write(grey(level), times=5)
    writer.close()
    return path


def test_frames_are_read_in_order(video):
    levels = [float(picture.mean()) for picture in iterate_pictures(video)]
    assert levels == pytest.approx([level for level in LEVELS for _ in range(5)], abs=3)


def test_a_clip_shows_every_image_for_its_duration_and_meets_its_size_limit_or_fails(tmp_path):
    path = tmp_path / "docs" / "clip.webp"
    times = (250, 250, 250, 2500)
    save_clip(path, [grey(level) for level in LEVELS], milliseconds=times, width=32, most_bytes=100_000)
    with Image.open(path) as clip:
        assert (clip.size, clip.n_frames, clip.info["loop"]) == ((32, 24), 4, 0)
        shown = []
        for frame in range(4):
            clip.seek(frame)
            clip.load()
            shown.append((clip.info["duration"], int(np.asarray(clip.convert("RGB")).mean())))
    assert [duration for duration, _ in shown] == list(times)
    assert [level for _, level in shown] == pytest.approx(LEVELS, abs=3)
    noise = [np.random.default_rng(n).integers(0, 256, (48, 64, 3), np.uint8) for n in range(3)]
    sizes = []
    for most in (100_000, 6_000):
        save_clip(tmp_path / "clip.webp", noise, milliseconds=(50,) * 3, width=64, most_bytes=most)
        sizes.append((tmp_path / "clip.webp").stat().st_size)
    assert sizes[1] <= 6_000 < sizes[0]
    with pytest.raises(VideoError, match="exceed 100 bytes"):
        save_clip(tmp_path / "none.webp", noise, milliseconds=(50,) * 3, width=64, most_bytes=100)
    assert not (tmp_path / "none.webp").exists()


def test_a_gif_has_the_pace_of_its_video(video):
    content, size = to_gif(video, fps=5.0, width=32)
    with Image.open(io.BytesIO(content)) as gif:
        assert gif.size == size == (32, 24)
        seen = [
            (frame.convert("L").getpixel((5, 5)), gif.info["duration"])
            for frame in ImageSequence.Iterator(gif)
        ]
    # Equal frames are joined.
    assert seen == [
        (pytest.approx(level, abs=4), ms) for level, ms in ((20, 400), (80, 200), (140, 200), (200, 200))
    ]
