"""What shows an evaluation while it goes on, and when it is given up."""

from collections.abc import Callable, Sequence
from typing import Protocol, Self

from eval.metrics.success import Results
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult, Outcome
from eval.rollout.plan import EpisodePlan
from sim_envs.world import EpisodeKey

MAX_ERRORS = 5
"""Errors in a row after which an evaluation stops, unless told otherwise."""


class RepeatedErrorsError(RuntimeError):
    """So many episodes in a row were errors that the rest would be, too."""

    def __init__(self, count: int, first: EpisodeResult) -> None:
        super().__init__(
            f"stopped: {count} episodes in a row were errors, the first with the traceback above "
            f"({first.error}); mend it and go on with --resume, or allow more with --max-errors"
        )
        self.traceback = str(first.traceback)


class Monitor(Protocol):
    """What shows an evaluation while it goes on."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(self, *_: object) -> None:
        """Stop."""

    def began(self, world: int, variant: int, key: EpisodeKey) -> None:
        """A world begins an episode of a run."""

    def episode(self, variant: int, result: EpisodeResult) -> None:
        """An episode of a run has ended."""

    def resumed(self, variant: int, result: EpisodeResult) -> None:
        """An episode had ended before the run was resumed."""

    def interrupted(self) -> None:
        """The evaluation was stopped, and can be resumed."""

    def conclude(self, results: Sequence[Results]) -> None:
        """All episodes have ended."""


MonitorFactory = Callable[[Sequence[Run], EpisodePlan], Monitor]


class Watch:
    """Shows every episode, and gives up when too many in a row were errors.

    Attributes:
        monitor: Shows them.
    """

    def __init__(self, monitor: Monitor, max_errors: int) -> None:
        self.monitor = monitor
        self._max_errors = max_errors
        self._in_a_row: list[EpisodeResult] = []

    def ended(self, variant: int, result: EpisodeResult) -> None:
        """An episode has ended."""
        self.monitor.episode(variant, result)
        if result.outcome is not Outcome.ERROR:
            self._in_a_row.clear()
            return
        self._in_a_row.append(result)
        if len(self._in_a_row) >= self._max_errors:
            raise RepeatedErrorsError(len(self._in_a_row), first=self._in_a_row[0])
