"""What a person sees while a sweep goes on: how many episodes have ended, how fast, and the errors."""

import datetime as dt
import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from configs.cli import counted
from eval.metrics.success import Results, graded_only, solved
from eval.records.run_folders import Run, policy_name
from eval.records.schema import EpisodeResult, Outcome
from eval.rollout.plan import EpisodePlan
from sim_envs.world import EpisodeKey

_PACE_S = 300.0
_TELL_EVERY_S = 60.0


class SweepConsole:
    """The terminal of a sweep. What came of it is told when all of it is known."""

    def __init__(self, runs: Sequence[Run], plan: EpisodePlan) -> None:
        self._rich = RichConsole(highlight=False)
        self._folder = runs[0].folder.path.parent
        self._results: list[EpisodeResult] = []
        self._played = 0
        self._say(
            f"{policy_name(runs[0].config.policy)}: {counted(len(runs), 'cell')} of "
            f"{counted(len(plan.keys), 'episode')} each → {self._folder}"
        )
        self._progress = Progress(
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=self._rich,
            disable=not self._rich.is_terminal,  # in a file there is a line a minute instead
            speed_estimate_period=_PACE_S,
        )
        self._bar = self._progress.add_task("", total=len(plan.keys) * len(runs), status="")
        self._told, self._began = time.monotonic(), time.perf_counter()

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def began(self, world: int, variant: int, key: EpisodeKey) -> None:
        """Nothing: with many cells, which of them is played says little."""

    def episode(self, variant: int, result: EpisodeResult) -> None:
        """Move the bar, or say once a minute how far it is; an error is told at once, in one line."""
        self._played += 1
        self.resumed(variant, result)
        if result.error is not None:
            self._say(f"{result.outcome.value.replace('_', ' ')} in {result.key}: {result.error}")
        if not self._rich.is_terminal and time.monotonic() - self._told >= _TELL_EVERY_S:
            self._told = time.monotonic()
            self._say(self._progress_line())

    def resumed(self, variant: int, result: EpisodeResult) -> None:
        """Count an episode that was played before."""
        del variant
        self._results.append(result)
        self._progress.update(self._bar, advance=1, status=self._status())

    def interrupted(self) -> None:
        """Say what is safe and how to go on."""
        total = self._progress.tasks[0].total or 0
        self._say(
            f"Interrupted: {len(self._results)} of {counted(int(total), 'episode')} are recorded in "
            f"{self._folder}. The same command with --resume completes them."
        )

    def conclude(self, results: Sequence[Results]) -> None:
        """Nothing yet: the sweep tells what came of it."""

    def _status(self) -> str:
        graded = graded_only(self._results)
        errors = sum(result.outcome is Outcome.ERROR for result in self._results)
        hours = max(time.perf_counter() - self._began, 1e-3) / 3600
        parts = [
            *([f"{100 * sum(map(solved, graded)) / len(graded):.0f} % solved"] if graded else []),
            *([counted(errors, "error")] if errors else []),
            *([f"{self._played / hours:.0f} episodes/h"] if self._played else []),
        ]
        return ", ".join(parts)

    def _progress_line(self) -> str:
        (bar,) = self._progress.tasks
        left = "" if bar.time_remaining is None else f", {dt.timedelta(seconds=bar.time_remaining)} left"
        return f"{bar.completed:.0f} of {counted(int(bar.total or 0), 'episode')}, {self._status()}{left}"

    def _say(self, line: str) -> None:
        self._rich.print(line, soft_wrap=True, markup=False, emoji=False)
