"""Records the video of one episode, from camera images to a file named after the outcome."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from videos.mp4 import Mp4Writer, VideoError
from videos.panel import Caption, compose, draw_first_camera, draw_moment, picture_size

_OUTCOME_S = 1.5  # minimal duration of the last image, which shows the outcome
_PATIENCE_S = 60.0  # time to draw and encode the frames of one image


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Scene:
    images: Mapping[str, UInt8[np.ndarray, "_ _ 3"]]
    steps: int
    caption: Caption


class EpisodeVideo:
    """Writes the video of a running episode, at real-time speed.

    There is one frame per control step, at `control_hz` frames per second: images are repeated until the
    next ones; numbers, ages of texts and the timeline advance with every frame. The latest images are held
    back until the next ones or until `close`, which adds the outcome and shows it long enough to be read.
    Drawing and encoding run in the background, at most one image behind.

    The file has a temporary name until it is complete.

    Args:
        stem: Path without outcome and suffix, another one for every episode: `videos/task00_ep000_seed7`
            becomes `videos/task00_ep000_seed7_success.mp4`. Missing folders are created.
        control_hz: Control steps per simulated second.
    """

    def __init__(self, stem: Path, *, control_hz: float) -> None:
        self._stem = stem
        self._control_hz = control_hz
        self._partial = stem.with_name(f".{stem.name}.partial.mp4")
        self._writer: Mp4Writer | None = None
        self._newest: _Scene | None = None
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="video")
        self._drawing: Future[None] | None = None
        self._drawn: _Scene | None = None
        self._picture: UInt8[np.ndarray, "height width 3"] = np.empty((0, 0, 3), np.uint8)

    def add(self, images: Mapping[str, UInt8[np.ndarray, "_ _ 3"]], steps: int, *, caption: Caption) -> None:
        """Append camera images, of a query or between two queries.

        Args:
            images: Camera name to pixels; the same number of cameras in every call.
            steps: Control steps until the next images, at least 1.
            caption: The caption at the first of these steps. Its timeline includes everything that starts
                before the last of them ends.

        Raises:
            VideoError: The encoder has stopped.
        """
        self._draw_newest()
        # Copied, since renderers reuse their buffers and these images are drawn later.
        kept = {name: pixels.copy() for name, pixels in images.items()}
        self._newest = _Scene(images=kept, steps=steps, caption=caption)

    def close(self, outcome: str) -> Path | None:
        """Write the outcome on the last frame and finish the file.

        Removes videos of earlier attempts at the episode.

        Returns:
            The finished file; None if no image was added.

        Raises:
            VideoError: The encoder failed; no file is left.
        """
        try:
            self._draw_newest(outcome)
            self._wait()
            if self._writer is None:
                return None
            self._writer.close()
            self._remove_earlier()
            return self._partial.rename(self._stem.with_name(f"{self._stem.name}_{outcome}.mp4"))
        finally:
            self.abandon()

    def discard(self) -> None:
        """Delete this video and those of earlier attempts at the episode."""
        self.abandon()
        self._remove_earlier()

    def abandon(self) -> None:
        """Stop, and delete the unfinished file. Does nothing after `close`."""
        self._newest = None
        if self._writer is not None:
            self._writer.kill()
        self._worker.shutdown(cancel_futures=True)
        if self._writer is not None:
            with contextlib.suppress(VideoError):
                self._writer.close()
            self._partial.unlink(missing_ok=True)

    def _remove_earlier(self) -> None:
        for earlier in self._stem.parent.glob(f"{self._stem.name}_*.mp4"):
            earlier.unlink()

    def _draw_newest(self, outcome: str | None = None) -> None:
        scene, self._newest = self._newest, None
        if scene is None:
            return
        if self._writer is None:
            width, height = picture_size(scene.caption, len(scene.images))
            self._partial.parent.mkdir(parents=True, exist_ok=True)
            self._writer = Mp4Writer(self._partial, width=width, height=height, fps=self._control_hz)
        self._wait()
        before, self._drawn = self._drawn, None if outcome else scene
        self._drawing = self._worker.submit(self._draw, self._writer, scene, before, outcome)

    def _wait(self) -> None:
        drawing, self._drawing = self._drawing, None
        if drawing is not None:
            try:
                drawing.result(_PATIENCE_S)
            except TimeoutError:
                raise VideoError(f"ffmpeg has not taken a frame for {_PATIENCE_S:g} s") from None

    def _draw(self, writer: Mp4Writer, scene: _Scene, before: _Scene | None, outcome: str | None) -> None:
        """Write one frame per control step; with an outcome, further frames for `_OUTCOME_S` in all."""
        least = 0 if outcome is None else math.ceil(_OUTCOME_S * self._control_hz)
        extra = max(0, least - scene.steps)
        if before is not None and outcome is None and _differ_in_first_camera_only(before, scene):
            draw_first_camera(self._picture, *next(iter(scene.images.items())))
        else:
            self._picture = compose(scene.images, scene.caption, outcome=outcome)
        for step in range(scene.steps):
            self._move_to(step, scene)
            writer.write(self._picture)
        if extra:
            self._move_to(scene.steps, scene)
            writer.write(self._picture, times=extra)

    def _move_to(self, step: int, scene: _Scene) -> None:
        time_s = scene.caption.time_s + step / self._control_hz
        draw_moment(self._picture, dataclasses.replace(scene.caption, time_s=time_s))


def _differ_in_first_camera_only(before: _Scene, scene: _Scene) -> bool:
    """Whether the images are of the same query, and the texts the same."""
    if dataclasses.replace(before.caption, time_s=scene.caption.time_s) != scene.caption:
        return False
    _, *others = scene.images
    return all(np.array_equal(before.images[name], scene.images[name]) for name in others)
