"""Logs a run as TensorBoard event files in its folder, without TensorFlow or PyTorch."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary

from eval.loggers.monitor import describe
from eval.records.run_folders import Run
from videos.clip import to_gif

EVENTS = "events"
"""The folder of event files in the run's folder."""
_WIDTH = 320
_FPS = 2.5
"""Size and frame rate of videos, which TensorBoard stores as GIF: about 1 MB in 15 seconds."""


class TensorBoardLogger:
    """Writes event files. A resumed run adds files, which TensorBoard joins."""

    def __init__(self, run: Run, group: str) -> None:  # noqa: ARG002 - runs are grouped by their folders
        events = run.folder.path / EVENTS
        before = len(list(events.glob("*")))  # file names have a resolution of one second
        self.where = shlex.join(["tensorboard", "--logdir", str(run.folder.path.parent)])
        self._writer = SummaryWriter(str(events), filename_suffix=f".{before:04d}")
        if not before:
            self._writer.add_text("run", f"```json\n{json.dumps(describe(run), indent=1)}\n```")

    def log(self, values: Mapping[str, float], videos: Mapping[str, Path], *, step: int) -> None:
        """See `RunLogger`."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        for name, path in videos.items():
            content, (width, height) = to_gif(path, fps=_FPS, width=_WIDTH)
            image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=content)
            summary = Summary(value=[Summary.Value(tag=name, image=image)])
            self._writer.file_writer.add_summary(summary, step)
        self._writer.flush()

    def close(self) -> None:
        """See `RunLogger`."""
        self._writer.close()
