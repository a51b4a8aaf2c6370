"""Logs the episodes of an evaluation as they end: running success rate, latency, videos."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from configs.console import visible_text
from configs.errors import one_line, unknown
from configs.hashing import hash_of
from eval.metrics.statistics import wilson_95
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult, Outcome, solved
from eval.rollout.monitor import Monitor, MonitorFactory
from eval.rollout.plan import EpisodePlan

PROJECT = "oxygen-eval"
"""Project of logs that are kept by project, unless the logger's environment variable names another."""
_DESCRIBED = (
    *("command", "mode", "policy", "weights_sha256", "assets", "config", "protocol_hash"),
    *("git", "versions", "hardware"),
)
"""Fields of a manifest that are logged."""


class RunLogger(Protocol):
    """Logs one run. Any method may raise; the evaluation goes on without the log.

    Attributes:
        where: Command or address that shows the log.
    """

    where: str

    def log(self, values: Mapping[str, float], videos: Mapping[str, Path], *, step: int) -> None:
        """Log metrics and videos after an episode.

        Args:
            values: Metrics by name, in groups: `success/rate`.
            videos: MP4 files by name.
            step: Number of the run's episodes that have ended. Repeats where errors are retried.
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


_QUANTILES = ("p50", "p95")


def with_log(monitor: MonitorFactory, name: str | None) -> MonitorFactory:
    """The monitor together with a logger; the monitor alone without a name.

    Raises:
        UsageError: There is no such logger, or it needs a login.
        ModuleNotFoundError: Its package is not installed.
    """
    if name is None:
        return monitor
    log = functools.partial(LoggingMonitor, name=name, open_logger=choose_logger(name))
    return lambda runs, plan: Monitor.of(log(runs, plan), monitor(runs, plan))


def choose_logger(name: str) -> LoggerFactory:
    """The logger of a name.

    Raises:
        UsageError: There is none of this name, or it needs a login.
        ModuleNotFoundError: Its package is not installed.
    """
    match name:
        case "tensorboard":
            from eval.loggers.tensorboard import TensorBoardLogger

            return TensorBoardLogger
        case "trackio":
            from eval.loggers.trackio import TrackioLogger

            return TrackioLogger
        case "wandb":
            from eval.loggers.wandb import WandbLogger, require_login

            require_login()
            return WandbLogger
    raise unknown("logger", name, ("tensorboard", "wandb", "trackio"))


class LoggingMonitor(Monitor):
    """Logs every episode to its run's logger. A logger that fails is reported once and loses no episode.

    Args:
        runs: The variants.
        plan: Their episodes.
        name: The logger's, for messages.
        open_logger: Opens the log of a run.
    """

    def __init__(
        self, runs: Sequence[Run], plan: EpisodePlan, *, name: str, open_logger: LoggerFactory
    ) -> None:
        self._runs = runs
        self._name = name
        self._open = open_logger
        self._tallies = [_Tally(several_suites=len(plan.suites) > 1) for _ in runs]
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
        tally, logger = self._tallies[variant], self._loggers[variant]
        tally.add(result)
        videos = {}
        if result.video is not None:  # by task, so that trackers show a task's episodes as steps
            name = f"video/{result.key.suite}/task{result.key.task_id:02d}"
            videos[name] = self._runs[variant].folder.path / result.video
        with self._reported_once():
            if logger is not None:
                logger.log(tally.values(result), videos, step=tally.episodes)

    def resumed(self, variant: int, result: EpisodeResult) -> None:
        """Count an episode, which was logged when it was played."""
        self._tallies[variant].add(result)

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


class _Tally:
    """The episodes of a run so far."""

    def __init__(self, *, several_suites: bool) -> None:
        self._several_suites = several_suites
        self._solved: dict[str, list[bool]] = {}
        self._errors = 0

    @property
    def episodes(self) -> int:
        """Episodes that have ended, those with an error among them."""
        return sum(map(len, self._solved.values())) + self._errors

    def add(self, result: EpisodeResult) -> None:
        if result.outcome is Outcome.ERROR:
            self._errors += 1
        else:
            self._solved.setdefault(result.key.suite, []).append(solved(result))

    def values(self, result: EpisodeResult) -> dict[str, float]:
        """The metrics after an episode: rates in percent, latencies of this episode."""
        found: dict[str, float] = {"episode/errors": self._errors, "episode/steps": result.steps}
        graded = [each for of_suite in self._solved.values() for each in of_suite]
        interval = wilson_95(sum(graded), len(graded))
        if interval is not None:
            found |= {
                "success/rate": _percent(graded),
                "success/low": 100 * interval.low,
                "success/high": 100 * interval.high,
            }
        if self._several_suites:
            found |= {f"success/{suite}": _percent(each) for suite, each in self._solved.items()}
        if result.success_s is not None:
            found["episode/time_to_success_s"] = result.success_s
        for stage, summary in result.latency_ms.items():
            found |= {f"latency_ms/{stage}_{name}": summary[name] for name in _QUANTILES}
        return found


def _percent(outcomes: Sequence[bool]) -> float:
    return 100 * sum(outcomes) / len(outcomes)
