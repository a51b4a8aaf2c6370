"""Terminal output of a collection: a progress bar, errors, and a summary."""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from configs.console import TextConsole
from configs.errors import pluralize
from configs.motion import NONE
from configs.training import CollectConfig
from eval.collect.episode import EpisodeReport
from eval.collect.plan import DemonstrationKey
from eval.records.schema import Outcome
from sim_envs.world import EpisodeKey

_LOG_INTERVAL_S = 60.0


class CollectionConsole:
    """Prints the progress of one collection."""

    def __init__(
        self,
        config: CollectConfig,
        keys: Collection[DemonstrationKey],
        dataset: Path,
        *,
        pending: int,
        workers: int,
    ) -> None:
        """Print what is collected, and how many of the `keys` are done already."""
        self._rich = TextConsole()
        self.print = self._rich.print
        self._dataset, self._pending = dataset, pluralize(pending, "episode")
        self._kept = " and are among them" if config.keep_failures else ""
        noise = f", noise {config.expert_noise:g}" if config.expert_noise else ""
        motion = "" if config.motion in (None, NONE) else f", motion {escape(config.motion)}"
        learner = f", correcting {escape(config.learner)}" if config.learner else ""
        self._rich.print(
            f"Demonstrations of [bold]{escape(config.policy)}[/]{noise}{motion}{learner}, "
            f"assets {escape(', '.join(sorted({key.assets for key in keys})))} → {escape(str(dataset))}",
            soft_wrap=True,
        )
        if done := len(keys) - pending:
            self.print(f"Played before: {done} of {pluralize(len(keys), 'episode')}.")
        self.played = self.errors = self._solved = self._frames = 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=self._rich,
            disable=not self._rich.is_terminal,  # without a terminal, a line per minute instead
        )
        self._bar = self._progress.add_task(pluralize(workers, "worker"), total=pending, status="")
        self._began = self._logged = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def add(self, key: EpisodeKey, report: EpisodeReport) -> None:
        """Update the bar, or print a line per minute without a terminal; print an error at once."""
        self.played += 1
        self.errors += report.outcome is Outcome.ERROR
        self._solved += report.outcome is Outcome.SUCCESS
        self._frames += report.frames
        graded, per_s = self.played - self.errors, self._frames / (time.monotonic() - self._began)
        rate = f"{100 * self._solved / graded:.0f} % success" if graded else "no episode finished"
        status = f"{rate}, {per_s:.1f} frames/s"
        if self.errors:
            status += f", [red]{pluralize(self.errors, 'error')}[/]"
        self._progress.update(self._bar, advance=1, status=status)
        if report.error is not None:
            self.print(f"error in {key}: {report.error}", style="red", markup=False)
        if not self._rich.is_terminal and time.monotonic() - self._logged >= _LOG_INTERVAL_S:
            self._logged = time.monotonic()
            self.print(f"{self.played} of {self._pending}, {status}", soft_wrap=True)

    def conclude(self, counts: Mapping[str, int], sheet: Path) -> None:
        """Print a summary of the dataset."""
        kept = counts["demonstrations"]
        files = [file for part in ("data", "meta", "videos") for file in (self._dataset / part).rglob("*")]
        size = sum(file.stat().st_size for file in files if file.is_file()) / kept / 1e6
        summary = [
            f"[bold]{pluralize(kept, 'demonstration')}[/]",
            pluralize(counts["frames"], "frame"),
            f"{size:.2f} MB each",
            f"{pluralize(counts['failures'], 'episode')} failed{self._kept}",
        ]
        if self.errors:
            summary.append(f"[red]{pluralize(self.errors, 'error')}[/], which the same command tries again")
        self.print(", ".join(summary))
        self.print(f"Contact sheet: {sheet}", soft_wrap=True, markup=False)
