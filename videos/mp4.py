"""An H.264 file that grows while pictures are sent to it: nothing but the current picture is in memory."""

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
    """The encoder stopped; the message is what it said."""


class Mp4Writer:
    """Streams pictures of one size to ffmpeg: H.264, yuv420p, index in front, so that browsers play it.

    ffmpeg is run directly, with imageio's binary, because only its exit status says that the file is whole.

    Args:
        path: The file to write; an existing one is replaced.
        width: Pixels, even.
        height: Pixels, even.
        fps: Pictures per second.
    """

    def __init__(self, path: Path, *, width: int, height: int, fps: float) -> None:
        self._shape = (height, width, 3)
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._said = ""
        self._process = subprocess.Popen(
            _command(path, width=width, height=height, fps=fps),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._messages,
            start_new_session=True,  # Ctrl-C is for us to handle, not for the encoder
        )

    def write(self, picture: UInt8[np.ndarray, "height width 3"], *, times: int = 1) -> None:
        """Append the picture `times` times.

        Raises:
            VideoError: if the encoder has stopped.
            ValueError: if the picture has another size.
        """
        if picture.shape != self._shape:
            raise ValueError(f"a picture of shape {picture.shape} for a video of {self._shape}")
        # Converted here once, not by ffmpeg `times` times: half of the encoder's time and of the bytes sent.
        pixels = cv2.cvtColor(picture, cv2.COLOR_RGB2YUV_I420).data
        assert self._process.stdin is not None
        try:
            for _ in range(times):
                self._process.stdin.write(pixels)
        except BrokenPipeError:
            self.close()
            raise VideoError("ffmpeg closed its input early") from None

    def close(self) -> None:
        """Finish the file. Calling it again says the same again.

        Raises:
            VideoError: if the encoder failed: the file is then not to be used.
        """
        assert self._process.stdin is not None
        # What was buffered may have nobody left to read it; the exit status tells.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        status = self._process.wait()
        if not self._messages.closed:
            with self._messages as messages:
                messages.seek(0)
                self._said = messages.read().decode(errors="replace").strip() or "no message"
        if status != 0:
            raise VideoError(f"ffmpeg stopped with status {status}: {self._said.splitlines()[0]}")

    def kill(self) -> None:
        """Stop the encoder at once: from then on `write` and `close` raise VideoError."""
        self._process.kill()


def _command(path: Path, *, width: int, height: int, fps: float) -> list[str]:
    rate = str(Fraction(fps).limit_denominator(1001))
    source = ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", f"{width}x{height}", "-r", rate, "-i", "-"]
    # OpenCV converts with BT.601's matrix to the narrow range. Untagged, browsers would take it for BT.709.
    tags = "setparams=range=tv:colorspace=smpte170m:color_primaries=bt709:color_trc=bt709"
    # One thread: the simulator has better use for the others.
    codec = ["-vf", tags, "-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-threads", "1"]
    target = ["-an", "-movflags", "+faststart", "-f", "mp4", str(path)]
    return [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *source, *codec, *target]
