"""Progress reporting of an evaluation."""

import contextlib
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

from contracts.episode import EpisodeKey, EpisodeResult

ResultsT = TypeVar("ResultsT")


class Monitor(Generic[ResultsT]):
    """Reports the progress of an evaluation: by default to the monitors that it was given, in order.

    `ResultsT` are the results of a variant.
    """

    _monitors: Sequence["Monitor[ResultsT]"] = ()

    def __init__(self, *monitors: "Monitor[ResultsT]") -> None:
        self._monitors = monitors

    def __enter__(self) -> Self:
        """Start reporting."""
        for monitor in self._monitors:
            monitor.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        """Stop reporting."""
        with contextlib.ExitStack() as stack:
            for monitor in self._monitors:
                stack.callback(monitor.__exit__, *raised)

    def began(self, world: int, variant: int, key: EpisodeKey) -> None:
        """A world starts an episode of a variant."""
        for monitor in self._monitors:
            monitor.began(world, variant, key)

    def episode(self, variant: int, result: EpisodeResult) -> None:
        """An episode of a variant has ended."""
        for monitor in self._monitors:
            monitor.episode(variant, result)

    def resumed(self, recorded: Sequence[Sequence[EpisodeResult]]) -> None:
        """These episodes of each variant, which are not played again, were recorded before."""
        for monitor in self._monitors:
            monitor.resumed(recorded)

    def interrupted(self) -> None:
        """The evaluation was stopped and can be resumed."""
        for monitor in self._monitors:
            monitor.interrupted()

    def conclude(self, results: Sequence[ResultsT]) -> None:
        """All episodes have ended."""
        for monitor in self._monitors:
            monitor.conclude(results)
