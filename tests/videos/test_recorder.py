"""An episode's video lasts as long as the episode, plays in browsers, and is complete or absent."""

import dataclasses
import io
import re
import subprocess
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image, ImageSequence

from videos import theme
from videos.mp4 import Mp4Writer, VideoError, iterate_pictures, to_gif
from videos.panel import Caption, compose
from videos.recorder import EpisodeVideo
from videos.timeline import QuerySpan, QueryTimeline

CAPTION = Caption(
    task="pick up the bowl", episode="libero_object · task 0 · init 0", mode="unified", time_s=0.0
)


def cameras(level=120):
    gradient = np.arange(256, dtype=np.uint8)
    image = np.full((256, 256, 3), level, dtype=np.uint8)
    image[..., 0] = gradient
    image[..., 2] = gradient[:, None]
    return {"image": image, "wrist_image": image[::-1].copy()}


def record(stem, pieces, *, control_hz=2.0, outcome="success"):
    video = EpisodeVideo(stem, control_hz=control_hz)
    try:
        for steps in pieces:
            video.add(cameras(), steps, caption=CAPTION)
        return video.close(outcome)
    finally:
        video.abandon()


def ffmpeg(*arguments):
    return subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), *arguments], capture_output=True, check=False)


def decode(path):
    """Every frame of a video, as a player would show it."""
    info = ffmpeg("-hide_banner", "-i", str(path)).stderr.decode()
    width, height = map(int, re.search(r"(\d{3,5})x(\d{3,5})", info).groups())
    raw = ffmpeg("-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-").stdout
    return info, np.frombuffer(raw, dtype=np.uint8).reshape(-1, height, width, 3)


@pytest.mark.parametrize(
    ("control_hz", "pieces", "held"),
    [
        (15.0, [8, 8, 8, 1], 23),
        *(
            pytest.param(20.0, pieces, held, marks=pytest.mark.slow)
            for pieces, held in (([5, 5, 3], 30), ([1], 30), ([5, 7, 1, 40], 40))
        ),
    ],
)
def test_the_video_has_one_frame_per_control_step_and_shows_the_outcome_for_a_second_and_a_half(
    tmp_path, control_hz, pieces, held
):
    path = record(tmp_path / "task00_ep000", pieces, control_hz=control_hz)
    info, frames = decode(path)
    assert "h264" in info
    assert "yuv420p" in info
    head = path.read_bytes()
    assert head.find(b"moov") < head.find(b"mdat"), "browsers need the index first"
    assert len(frames) == sum(pieces[:-1]) + held
    assert f" {control_hz:g} fps" in info
    (seconds,) = re.search(r"Duration: 00:00:([\d.]+)", info).groups()
    assert float(seconds) == pytest.approx(len(frames) / control_hz, abs=0.011)  # printed in hundredths


def test_time_advances_with_every_frame_until_the_end(tmp_path):
    query = QuerySpan(issued_s=0.0, actions_s=3 / 20, free_s=7 / 20)
    timeline = QueryTimeline(queries=(query,), idle=((0.0, 3 / 20),))
    captions = [dataclasses.replace(CAPTION, timeline=timeline, time_s=step / 20) for step in range(10)]
    video = EpisodeVideo(tmp_path / "task00_ep000", control_hz=20.0)
    video.add(cameras(), 5, caption=captions[0])
    video.add(cameras(), 4, caption=captions[5])
    _, frames = decode(video.close("success"))
    assert len(frames) == 5 + 30
    place = (slice(theme.TIMELINE_TOP, theme.BOTTOM), slice(theme.sidebar_left(2), None))
    moments = np.stack([compose(cameras(), caption)[place] for caption in captions]).astype(int)
    shown = [int(np.abs(moments - frame[place]).mean(axis=(1, 2, 3)).argmin()) for frame in frames]
    assert shown == [*range(9), *[9] * 26]


def test_the_finished_file_carries_the_outcome_and_replaces_earlier_ones_and_no_other(tmp_path):
    folder = tmp_path / "libero_object"
    neighbour = record(folder / "task00_ep001", [2], outcome="invalid_action")
    assert neighbour == folder / "task00_ep001_invalid_action.mp4"
    record(folder / "task00_ep000", [2], outcome="error")
    path = record(folder / "task00_ep000", [2], outcome="success")
    assert sorted(folder.iterdir()) == sorted([path, neighbour])

    def pieces():
        yield from (5, 5, 5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(folder / "task00_ep002", pieces())
    assert sorted(folder.iterdir()) == sorted([path, neighbour])


def test_images_are_copied_when_they_are_added(tmp_path):
    images = cameras()
    video = EpisodeVideo(tmp_path / "task00_ep000", control_hz=2.0)
    video.add(images, 2, caption=CAPTION)
    for pixels in images.values():
        pixels[:] = 0  # a renderer that draws the next image into the same buffer
    video.add(images, 2, caption=CAPTION)
    _, frames = decode(video.close("success"))
    assert np.abs(frames[0].astype(int) - compose(cameras(), CAPTION)).mean() < 2


@pytest.mark.parametrize("last_act", ["", "cat >/dev/null"], ids=["at-once", "at-the-end"])
def test_an_encoder_that_fails_is_an_error_and_leaves_no_file(tmp_path, monkeypatch, last_act):
    encoder = tmp_path / "ffmpeg"
    encoder.write_text(f"#!/bin/sh\n{last_act}\necho no space left on device >&2\nexit 1\n")
    encoder.chmod(0o755)
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: str(encoder))
    with pytest.raises(VideoError, match=r"ffmpeg stopped with status 1: no space left on device"):
        record(tmp_path / "videos" / "task00_ep000", [5] * 9)
    assert list((tmp_path / "videos").iterdir()) == []


LEVELS = (20, 80, 140, 200)


def grey(level: int) -> np.ndarray:
    return np.full((48, 64, 3), level, np.uint8)


def test_frames_are_read_in_order_and_a_gif_has_the_pace_of_its_video(tmp_path):
    video = tmp_path / "video.mp4"
    writer = Mp4Writer(video, width=64, height=48, fps=20.0)
    for level in LEVELS:
        writer.write(grey(level), times=5)
    writer.close()
    levels = [float(picture.mean()) for picture in iterate_pictures(video)]
    assert levels == pytest.approx([level for level in LEVELS for _ in range(5)], abs=3)
    content, size = to_gif(video, fps=5.0, width=32)
    with Image.open(io.BytesIO(content)) as gif:
        assert gif.size == size == (32, 24)
        frames = ImageSequence.Iterator(gif)
        seen = [(frame.convert("L").getpixel((5, 5)), gif.info["duration"]) for frame in frames]
    durations = (400, 200, 200, 200)  # equal frames are joined
    assert seen == [(pytest.approx(level, abs=4), ms) for level, ms in zip(LEVELS, durations, strict=True)]


@pytest.mark.parametrize("name", ["pi05:ft@2000", "a #1 50% [x]", "-y", "%03d", "concat:a|b", "line\nbreak"])
def test_no_name_is_an_option_an_address_or_a_pattern(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    folder = Path(name)
    folder.mkdir()
    assert record(folder / name, [3]) == folder / f"{name}_success.mp4"
    (video,) = folder.iterdir()
    assert len(list(iterate_pictures(video))) == 3


def test_a_name_that_opencv_cannot_read_is_an_error(tmp_path):
    with pytest.raises(VideoError, match="not UTF-8"):
        next(iterate_pictures(tmp_path / "\udcff.mp4"))
