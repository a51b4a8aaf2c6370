"""Logs the episodes of an evaluation as they end, in TensorBoard, Weights & Biases or Trackio.

Logged are the running success rate, latency and videos. W&B and Trackio read their environment variables:
WANDB_MODE=offline, WANDB_PROJECT, TRACKIO_DIR, ….
"""

import contextlib
import contextvars
import functools
import importlib
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from configs.console import visible_text
from contracts.episode import EpisodeResult, Outcome
from contracts.errors import UsageError, one_line, unknown
from contracts.hashing import hash_of
from contracts.monitor import Monitor
from eval.metrics.rows import rate_of
from eval.records.run_folders import Run
from eval.rollout.evaluation import MonitorFactory
from eval.rollout.plan import EpisodePlan
from videos.mp4 import to_gif

_PROJECT = "oxygen-eval"
"""Project of logs that are kept by project, unless the logger's environment variable names another."""
_DESCRIBED = (
    *("command", "mode", "policy", "weights_sha256", "assets", "config", "protocol_hash"),
    *("git", "versions", "hardware"),
)
"""Fields of a manifest that are logged."""
_STEP = "episode"
"""W&B's metric with the number of episodes. Its own step only grows; that of a resumed run may repeat."""
_GIF_WIDTH, _GIF_FPS = 320, 2.5
"""Width and frame rate of videos, which TensorBoard stores as GIF: about 1 MB in 15 seconds."""


class RunLogger(Protocol):
    """Logs one run. Any method may raise; the evaluation goes on without the log."""

    where: str  # command or address that shows the log

    def log(self, values: Mapping[str, float], videos: Mapping[str, Path], *, step: int) -> None:
        """Log metrics by name, in groups (`success/rate`), and MP4 files after an episode.

        `step` is the number of the run's episodes that have ended. It repeats where errors are retried.
        """

    def close(self) -> None:
        """Flush and close the log."""


LoggerFactory = Callable[[Run, str], RunLogger]
"""Opens the log of a run that has begun, in a group of runs; continues that of a resumed run."""


def describe(run: Run) -> dict[str, Any]:
    """The fields of a run's manifest that are logged."""
    manifest = run.folder.read_manifest()
    return {name: manifest.get(name) for name in _DESCRIBED}


def log_id(run: Run) -> str:
    """The id of a run's log: the same when it is resumed, another for runs that began in the same second."""
    manifest = run.folder.read_manifest()
    return f"{run.folder.run_id}-{hash_of([manifest['started'], manifest['config']])[:8]}"


class TensorBoardLogger:
    """Writes event files into the run's folder, without TensorFlow or PyTorch. A resumed run adds files."""

    def __init__(self, run: Run, group: str) -> None:
        from tensorboardX import SummaryWriter

        del group  # runs are grouped by their folders
        events = run.folder.path / "events"
        before = len(list(events.glob("*")))  # file names have a resolution of one second
        self.where = shlex.join(["tensorboard", "--logdir", str(run.folder.path.parent)])
        self._writer = SummaryWriter(str(events), filename_suffix=f".{before:04d}")
        if not before:
            self._writer.add_text("run", f"```json\n{json.dumps(describe(run), indent=1)}\n```")

    def log(self, values: Mapping[str, float], videos: Mapping[str, Path], *, step: int) -> None:
        """See `RunLogger`."""
        from tensorboardX.proto.summary_pb2 import Summary

        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        for name, path in videos.items():
            content, (width, height) = to_gif(path, fps=_GIF_FPS, width=_GIF_WIDTH)
            image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=content)
            self._writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), step)
        self._writer.flush()

    def close(self) -> None:
        """See `RunLogger`."""
        self._writer.close()


class TrackioLogger:
    """Logs to a run of Trackio, Hugging Face's local tracker. All variants of an evaluation are one group."""

    def __init__(self, run: Run, group: str) -> None:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT", _PROJECT)
        self.where = f"trackio show --project {project}"
        about = {"project": project, "name": log_id(run), "group": group, "config": describe(run)}
        begin = functools.partial(trackio.init, **about, resume="allow")
        self._video = functools.partial(trackio.Video, format="mp4")
        with contextlib.redirect_stdout(io.StringIO()):
            # In an empty context, since `init` finishes the run that the context holds.
            self._run = contextvars.Context().run(begin)

    def log(self, values: Mapping[str, float], videos: Mapping[str, Path], *, step: int) -> None:
        """See `RunLogger`."""
        films = {name: self._video(str(path)) for name, path in videos.items()}
        self._run.log({**values, **films}, step=step)

    def close(self) -> None:
        """See `RunLogger`."""
        with contextlib.redirect_stdout(io.StringIO()):
            self._run.finish()


class WandbLogger:
    """Logs to a run of W&B of the same name. All variants of an evaluation are one group."""

    def __init__(self, run: Run, group: str) -> None:
        import wandb

        self._video = functools.partial(wandb.Video, format="mp4")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            dir=os.environ.get("WANDB_DIR", run.folder.path),
            id=log_id(run),
            name=run.folder.run_id,
            group=group,
            config=describe(run),
            resume="allow",
            reinit="create_new",  # variants are open at the same time
            # Without W&B's own record of the command line, which would have the secrets in it.
            settings=wandb.Settings(console="off", silent=True, x_disable_meta=True),
        )
        self._run.define_metric("*", step_metric=_STEP)
        self.where = self._run.url or f"wandb sync {Path(self._run.dir).parent}"

    def log(self, values: Mapping[str, float], videos: Mapping[str, Path], *, step: int) -> None:
        """See `RunLogger`."""
        films = {name: self._video(str(path)) for name, path in videos.items()}
        self._run.log({**values, **films, _STEP: step})

    def close(self) -> None:
        """See `RunLogger`."""
        self._run.finish()


def _require_login(wandb: Any) -> None:
    remedy = "log offline with WANDB_MODE=offline"
    try:
        is_ready = wandb.setup().settings.mode != "online" or wandb.login(prompt=False)
    except wandb.errors.Error as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"--log wandb: {reason}; run wandb login --relogin, or {remedy}") from error
    if not is_ready:
        raise UsageError(
            "--log wandb: there is no API key for Weights & Biases; run wandb login, or set WANDB_API_KEY, "
            f"or {remedy}"
        )


_LOGGERS: Mapping[str, LoggerFactory] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "trackio": TrackioLogger,
}


def with_log(monitor: MonitorFactory, names: Sequence[str]) -> MonitorFactory:
    """The monitor together with loggers; the monitor alone without a name.

    Raises:
        UsageError: There is no such logger, or it needs a login.
        ModuleNotFoundError: Its package is not installed.
    """
    for name in names:
        if name not in _LOGGERS:
            raise unknown("logger", name, _LOGGERS)
        module = importlib.import_module("tensorboardX" if name == "tensorboard" else name)
        if name == "wandb":
            _require_login(module)
    logs = [functools.partial(LoggingMonitor, name=name, open_logger=_LOGGERS[name]) for name in names]
    return lambda runs, plan: Monitor(*(log(runs, plan) for log in logs), monitor(runs, plan))


class LoggingMonitor(Monitor[Any]):
    """Logs every episode to its run's logger. A logger that fails is reported once and loses no episode."""

    def __init__(
        self, runs: Sequence[Run], plan: EpisodePlan, *, name: str, open_logger: LoggerFactory
    ) -> None:
        self._runs, self._name, self._open = runs, name, open_logger
        self._has_several_suites = len(plan.suites) > 1
        self._ended: list[list[EpisodeResult]] = [[] for _ in runs]
        self._loggers: list[RunLogger | None] = []
        self._failed = False

    def __enter__(self) -> Self:
        group = self._runs[0].folder.run_id
        for run in self._runs:
            self._loggers.append(None)
            with self._reported_once():
                self._loggers[-1] = self._open(run, group)
        for where in dict.fromkeys(logger.where for logger in self._loggers if logger):
            sys.stdout.write(f"Log: {visible_text(where)}\n")
        return self

    def __exit__(self, *_: object) -> None:
        for logger in self._loggers:
            with self._reported_once():
                if logger is not None:
                    logger.close()

    def episode(self, variant: int, result: EpisodeResult) -> None:
        """Log an episode, and the rates with it."""
        self._ended[variant].append(result)
        videos = {}
        if result.video is not None:  # by task, so that trackers show a task's episodes as steps
            name = f"video/{result.key.suite}/task{result.key.task_id:02d}"
            videos[name] = self._runs[variant].folder.path / result.video
        with self._reported_once():
            if (logger := self._loggers[variant]) is not None:
                logger.log(self._values(variant), videos, step=len(self._ended[variant]))

    def resumed(self, recorded: Sequence[Sequence[EpisodeResult]]) -> None:
        """Count episodes, which were logged when they were played."""
        for ended, results in zip(self._ended, recorded, strict=True):
            ended.extend(results)

    def _values(self, variant: int) -> dict[str, float]:
        """The metrics after the last episode: rates in percent so far, and latencies of this episode."""
        ended = self._ended[variant]
        last, errors = ended[-1], sum(each.outcome is Outcome.ERROR for each in ended)
        found: dict[str, float] = {"episode/errors": errors, "episode/steps": last.steps}
        if rate := rate_of(ended):
            found |= {"success/low": rate.low, "success/high": rate.high, "success/rate": rate.percent}
        for suite in dict.fromkeys(each.key.suite for each in ended) if self._has_several_suites else ():
            if rate := rate_of([each for each in ended if each.key.suite == suite]):
                found[f"success/{suite}"] = rate.percent
        if last.success_s is not None:
            found["episode/time_to_success_s"] = last.success_s
        for stage, summary in last.latency_ms.items():
            found |= {f"latency_ms/{stage}_p50": summary.p50, f"latency_ms/{stage}_p95": summary.p95}
        return found

    @contextlib.contextmanager
    def _reported_once(self) -> Iterator[None]:
        """Report the first failure on stderr, and suppress all."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - libraries that talk to servers raise anything
            if not self._failed:
                message = visible_text(one_line(error))
                sys.stderr.write(
                    f"--log {self._name} failed and has gaps ({message}); episodes are recorded as before\n"
                )
            self._failed = True
