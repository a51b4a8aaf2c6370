"""Logs a run to Trackio, Hugging Face's local tracker. Reads its environment variables: TRACKIO_DIR, …."""

import contextlib
import contextvars
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trackio

from eval.loggers.monitor import PROJECT, describe, log_id
from eval.records.run_folders import Run


class TrackioLogger:
    """Logs to a run of Trackio. All variants of an evaluation are one group."""

    def __init__(self, run: Run, group: str) -> None:
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        self.where = f"trackio show --project {project}"

        def begin() -> Any:
            return trackio.init(
                project=project, name=log_id(run), group=group, config=describe(run), resume="allow"
            )

        with contextlib.redirect_stdout(io.StringIO()):
            # In an empty context, since `init` finishes the run that the context holds.
            self._run = contextvars.Context().run(begin)

    def log(self, values: Mapping[str, float], videos: Mapping[str, Path], *, step: int) -> None:
        """See `RunLogger`."""
        films = {name: trackio.Video(str(path), format="mp4") for name, path in videos.items()}
        self._run.log({**values, **films}, step=step)

    def close(self) -> None:
        """See `RunLogger`."""
        with contextlib.redirect_stdout(io.StringIO()):
            self._run.finish()
