"""Progress reporting of an evaluation, and its stop after too many errors."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Self

from eval.metrics.success import Results
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult
from eval.rollout.plan import EpisodePlan
from sim_envs.world import EpisodeKey

MAX_ERRORS = 5
"""Default of `--max-errors`: consecutive errors after which an evaluation stops."""


class RepeatedErrorsError(RuntimeError):
    """Too many consecutive episodes were errors."""

    def __init__(self, count: int, first: EpisodeResult) -> None:
        super().__init__(
            f"stopped: {count} episodes in a row were errors, the first with the traceback above "
            f"({first.error}); fix it and continue with --resume, or allow more with --max-errors"
        )
        self.traceback = str(first.traceback)


class Monitor:
    """Reports the progress of an evaluation. By default every method does nothing."""

    def __enter__(self) -> Self:
        """Start reporting."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop reporting."""

    def began(self, world: int, variant: int, key: EpisodeKey) -> None:
        """A world starts an episode of a variant."""

    def episode(self, variant: int, result: EpisodeResult) -> None:
        """An episode of a variant has ended."""

    def resumed(self, variant: int, result: EpisodeResult) -> None:
        """An episode was recorded before the run was resumed."""

    def interrupted(self) -> None:
        """The evaluation was stopped and can be resumed."""

    def conclude(self, results: Sequence[Results]) -> None:
        """All episodes have ended."""


class Monitors(Monitor):
    """Forwards each event to several monitors, in order."""

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        self._monitors = monitors
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for monitor in self._monitors:
            self._entered.enter_context(monitor)
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def began(self, world: int, variant: int, key: EpisodeKey) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            monitor.began(world, variant, key)

    def episode(self, variant: int, result: EpisodeResult) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            monitor.episode(variant, result)

    def resumed(self, variant: int, result: EpisodeResult) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            monitor.resumed(variant, result)

    def interrupted(self) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            monitor.interrupted()

    def conclude(self, results: Sequence[Results]) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            monitor.conclude(results)


MonitorFactory = Callable[[Sequence[Run], EpisodePlan], Monitor]
