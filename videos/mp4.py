"""Writes H.264 files, one frame in memory, reads them, and makes GIFs of them."""

import contextlib
import functools
import io
import itertools
import subprocess
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import cv2
import imageio_ffmpeg
import numpy as np
from jaxtyping import UInt8
from PIL import Image


class VideoError(RuntimeError):
    """The encoder failed; the message is ffmpeg's."""


def file_address(path: Path) -> str:
    """A path as ffmpeg reads it, whatever its characters: not as an option or another protocol."""
    return f"file:{path}"


_CODEC = ("-c:v", "libx264", "-preset", "veryfast", "-crf", "20")
_PATIENCE_S = 60.0
"""Time that the encoder has for a few frames, or to finish a file."""
REMEDY = "unset IMAGEIO_FFMPEG_EXE or name an ffmpeg with libx264 there, or reinstall imageio-ffmpeg"


@functools.cache
def encoder_problem() -> str | None:
    """Why this machine cannot write videos; None if it can. Encodes one frame."""
    frame = ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", "16x16", "-i", "-"]
    try:
        done = subprocess.run(
            [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *frame, *_CODEC, "-f", "null", "-"],
            input=bytes(16 * 16 * 3 // 2),
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return _reason(error)
    return None if done.returncode == 0 else _failure(done.returncode, done.stderr)


def _reason(error: Exception) -> str:
    """Why ffmpeg could not be started, in one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def _failure(status: int, messages: bytes) -> str:
    first, *_ = messages.decode(errors="replace").strip().splitlines() or ["no message"]
    how = f"was killed by signal {-status}" if status < 0 else f"stopped with status {status}"
    return f"ffmpeg {how}: {first}"


class Mp4Writer:
    """Streams frames of one even size to ffmpeg: H.264, yuv420p, with the index first, for browsers.

    Runs imageio's ffmpeg binary directly, since only its exit status tells whether the file is complete.
    """

    def __init__(self, path: Path, *, width: int, height: int, fps: float) -> None:
        """Start the encoder; a VideoError if that fails."""
        self._shape = (height, width, 3)
        self._failure = ""
        rate = str(Fraction(fps).limit_denominator(1001))
        source = ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", f"{width}x{height}", "-r", rate, "-i", "-"]
        # OpenCV converts with BT.601's matrix and limited range; browsers assume BT.709 unless tagged.
        tags = "setparams=range=tv:colorspace=smpte170m:color_primaries=bt709:color_trc=bt709"
        # One thread: the simulator needs the others.
        codec = ["-vf", tags, *_CODEC, "-threads", "1"]
        target = ["-an", "-movflags", "+faststart", "-f", "mp4", file_address(path)]
        try:
            self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
            self._process = subprocess.Popen(
                [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *source, *codec, *target],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._messages,
                start_new_session=True,  # keeps Ctrl-C from the encoder
            )
        except (OSError, RuntimeError) as error:
            raise VideoError(_reason(error)) from None

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
        try:
            status = self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self._process.wait()
        if not self._messages.closed:
            with self._messages as messages:
                messages.seek(0)
                self._failure = _failure(status, messages.read()) if status else ""
        if self._failure:
            raise VideoError(self._failure)

    def kill(self) -> None:
        """Kill the encoder; `write` and `close` raise VideoError from then on."""
        self._process.kill()


Picture = UInt8[np.ndarray, "height width 3"]


def iterate_pictures(video: Path) -> Iterator[Picture]:
    """The frames of a video, one after the other; none if the file is not a video."""
    with _opened(video) as stream:
        while True:
            there, picture = stream.read()
            if not there:
                return
            yield cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)


@contextlib.contextmanager
def _opened(video: Path) -> Iterator[cv2.VideoCapture]:
    address = file_address(video)
    if any("\ud800" <= each <= "\udfff" for each in address):
        raise VideoError(f"{address!a}: OpenCV reads no path that is not UTF-8; rename it")  # it crashes
    stream = cv2.VideoCapture(address, cv2.CAP_FFMPEG)
    try:
        yield stream
    finally:
        stream.release()


def to_gif(video: Path, *, fps: float, width: int) -> tuple[bytes, tuple[int, int]]:
    """The content of an endlessly looping GIF of a video, and its width and height.

    `fps` and `width`, pixels, are at most those of the video; the height follows.

    Raises:
        VideoError: The file is not a video.
    """
    with _opened(video) as stream:
        rate = stream.get(cv2.CAP_PROP_FPS)
    every = max(1, round(rate / fps))
    frames = itertools.islice(iterate_pictures(video), 0, None, every)
    kept = [_scaled(picture, min(width, picture.shape[1])) for picture in frames]
    if not kept:
        raise VideoError(f"{video} cannot be read")
    content, duration = io.BytesIO(), round(1000 * every / rate)
    kept[0].save(content, "gif", save_all=True, append_images=kept[1:], loop=0, duration=duration)
    return content.getvalue(), kept[0].size


def _scaled(picture: Picture, width: int) -> Image.Image:
    size = (width, round(width * picture.shape[0] / picture.shape[1]))
    return Image.fromarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA))
