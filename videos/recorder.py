"""The video of one episode: from the pictures of its queries to a finished file that carries the outcome."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from videos import theme
from videos.mp4 import Mp4Writer, VideoError
from videos.panel import Caption, compose, draw_moment

_OUTCOME_S = 1.5
"""The last picture, which names the outcome, stands at least so long."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Scene:
    """The cameras' pictures at one moment, and for how many control steps they stand."""

    images: Mapping[str, UInt8[np.ndarray, "_ _ 3"]]
    steps: int
    caption: Caption


class EpisodeVideo:
    """Writes an episode's video while the episode goes on, in real time.

    A picture is repeated for as many frames as control steps were taken on it, at `control_hz` frames a
    second; where it has a lane, time goes on from frame to frame. The newest one is held back until the next
    comes, or until `close`, which writes the outcome on it and lets it stand long enough to be read. Drawing
    and encoding go on beside the simulation, at most one picture behind.

    The file has a temporary name until it is whole. `with` abandons the video unless it was closed.

    Args:
        stem: Where the video goes, without outcome and ending: `videos/libero_object/task00_ep000` becomes
            `videos/libero_object/task00_ep000_success.mp4`. Missing folders are made.
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

    def add(self, images: Mapping[str, UInt8[np.ndarray, "_ _ 3"]], steps: int, *, caption: Caption) -> None:
        """Append the pictures of one moment: a query's, or those between two queries.

        Args:
            images: Camera name to pixels; the same number of cameras in every call.
            steps: Control steps taken before the next pictures, at least 1.
            caption: What is written beside them; its time is that of the first of those steps. A lane has all
                that begins before the last of them is over.

        Raises:
            VideoError: if the encoder has stopped.
            ValueError: if no step was taken, or there is no camera.
        """
        if steps < 1 or not images:
            raise ValueError(
                f"{steps} steps on the pictures of {len(images)} cameras: both must be at least 1"
            )
        self._draw_newest()
        # Renderers reuse their buffers, and this picture is drawn only when the next one comes.
        kept = {name: pixels.copy() for name, pixels in images.items()}
        self._newest = _Scene(images=kept, steps=steps, caption=caption)

    def close(self, outcome: str) -> Path | None:
        """Write the outcome on the last picture and finish the file.

        Videos of the same episode that ended otherwise (an error, before a retry) are removed.

        Returns:
            The finished file; None if no picture was added.

        Raises:
            VideoError: if the encoder failed; no file is left then.
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
        """Leave no video of the episode, neither this one nor one of an earlier attempt."""
        self.abandon()
        self._remove_earlier()

    def abandon(self) -> None:
        """Stop and leave no unfinished file. After `close` it does nothing."""
        self._newest = None
        if self._writer is not None:
            self._writer.kill()
        self._worker.shutdown(cancel_futures=True)
        if self._writer is not None:
            with contextlib.suppress(VideoError):
                self._writer.close()
            self._partial.unlink(missing_ok=True)

    def __enter__(self) -> "EpisodeVideo":
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def _remove_earlier(self) -> None:
        for earlier in self._stem.parent.glob(f"{self._stem.name}_*.mp4"):
            earlier.unlink()

    def _draw_newest(self, outcome: str | None = None) -> None:
        scene, self._newest = self._newest, None
        if scene is None:
            return
        writer = self._open(cameras=len(scene.images))
        self._wait()
        self._drawing = self._worker.submit(_draw, writer, scene, self._control_hz, outcome)

    def _wait(self) -> None:
        """Until the picture under way is with the encoder; what went wrong with it is raised here."""
        drawing, self._drawing = self._drawing, None
        if drawing is not None:
            drawing.result()

    def _open(self, *, cameras: int) -> Mp4Writer:
        if self._writer is None:
            width, height = theme.picture_size(cameras)
            self._partial.parent.mkdir(parents=True, exist_ok=True)
            self._writer = Mp4Writer(self._partial, width=width, height=height, fps=self._control_hz)
        return self._writer


def _draw(writer: Mp4Writer, scene: _Scene, control_hz: float, outcome: str | None) -> None:
    """One frame per control step, and after an episode's last as many as it takes to read the outcome."""
    least = 0 if outcome is None else math.ceil(_OUTCOME_S * control_hz)
    extra = max(0, least - scene.steps)
    picture = compose(scene.images, scene.caption, outcome=outcome)
    if scene.caption.lane is None:
        writer.write(picture, times=scene.steps + extra)
        return
    for step in range(scene.steps):
        _move_to(step, picture, scene, control_hz)
        writer.write(picture)
    if extra:
        _move_to(scene.steps, picture, scene, control_hz)
        writer.write(picture, times=extra)


def _move_to(step: int, picture: UInt8[np.ndarray, "_ _ 3"], scene: _Scene, control_hz: float) -> None:
    """Let time pass on a picture until so many control steps after it was taken."""
    time_s = scene.caption.time_s + step / control_hz
    draw_moment(picture, dataclasses.replace(scene.caption, time_s=time_s))
