"""Streams frames to an H.264 file, with one frame in memory."""

import contextlib
import subprocess
import tempfile
from fractions import Fraction
from pathlib import Path

import cv2
import imageio_ffmpeg
import numpy as np
from jaxtyping import UInt8


class VideoError(RuntimeError):
    """The encoder failed; the message is ffmpeg's."""


class Mp4Writer:
    """Streams frames of one size to ffmpeg: H.264, yuv420p, with the index first, for browsers.

    Runs imageio's ffmpeg binary directly, since only its exit status tells whether the file is complete.

    Args:
        path: The file to write; an existing one is replaced.
        width: Pixels, even.
        height: Pixels, even.
        fps: Frames per second.
    """

    def __init__(self, path: Path, *, width: int, height: int, fps: float) -> None:
        self._shape = (height, width, 3)
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._message = ""
        rate = str(Fraction(fps).limit_denominator(1001))
        source = ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", f"{width}x{height}", "-r", rate, "-i", "-"]
        # OpenCV converts with BT.601's matrix and limited range; browsers assume BT.709 unless tagged.
        tags = "setparams=range=tv:colorspace=smpte170m:color_primaries=bt709:color_trc=bt709"
        # One thread: the simulator needs the others.
        codec = ["-vf", tags, "-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-threads", "1"]
        target = ["-an", "-movflags", "+faststart", "-f", "mp4", str(path)]
        self._process = subprocess.Popen(
            [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *source, *codec, *target],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._messages,
            start_new_session=True,  # keeps Ctrl-C from the encoder
        )

    def write(self, picture: UInt8[np.ndarray, "height width 3"], *, times: int = 1) -> None:
        """Append a frame, `times` times.

        Raises:
            VideoError: The encoder has stopped.
            ValueError: The frame has the wrong size.
        """
        if picture.shape != self._shape:
            raise ValueError(f"the frame has shape {picture.shape}, but the video {self._shape}")
        # Converting once here instead of `times` times in ffmpeg halves its time and the bytes sent.
        pixels = cv2.cvtColor(picture, cv2.COLOR_RGB2YUV_I420).data
        assert self._process.stdin is not None
        try:
            for _ in range(times):
                self._process.stdin.write(pixels)
        except BrokenPipeError:
            self.close()
            raise VideoError("ffmpeg closed its input early") from None

    def close(self) -> None:
        """Finish the file. Further calls have the same result.

        Raises:
            VideoError: The encoder failed, and the file is unusable.
        """
        assert self._process.stdin is not None
        # If the encoder has died, the exit status reports it.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        status = self._process.wait()
        if not self._messages.closed:
            with self._messages as messages:
                messages.seek(0)
                self._message = messages.read().decode(errors="replace").strip() or "no message"
        if status != 0:
            raise VideoError(f"ffmpeg stopped with status {status}: {self._message.splitlines()[0]}")

    def kill(self) -> None:
        """Kill the encoder; `write` and `close` raise VideoError from then on."""
        self._process.kill()
