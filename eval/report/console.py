"""What a person sees while a run goes on: progress bars; then tables, and what to look at."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from configs.errors import UsageError
from eval.metrics.success import Results
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult, Outcome
from eval.report.best_video import find_best_video
from eval.report.comparison import compare
from eval.report.comparison_tables import show
from eval.report.tables import (
    MEANING,
    arms_table,
    run_table,
    say_invalid_actions,
    say_texts,
    tasks_table,
    text_notes,
)
from eval.rollout.plan import EpisodePlan


class Console:
    """The terminal of an evaluation. Quiet but for the bars, the errors and what came of it."""

    def __init__(self, runs: Sequence[Run], plan: EpisodePlan) -> None:
        self._rich = RichConsole(highlight=False)
        self._runs = runs
        self._plan = plan
        self._results: defaultdict[tuple[int, str], list[EpisodeResult]] = defaultdict(list)
        modes = ", ".join(f"[bold]{run.config.mode}[/]" for run in runs)
        each = " each" if len(runs) > 1 else ""
        self._rich.print(
            f"[bold]{escape(runs[0].config.policy)}[/] in mode {modes}, {len(plan.keys)} episodes{each}, "
            f"{_assets_in_words(plan)}→ {escape(self._where())}",
            soft_wrap=True,
            emoji=False,
        )
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=self._rich,
        )
        self._bars: dict[tuple[int, str], TaskID] = {}
        for suite in plan.suites:
            total = sum(key.suite == suite for key in plan.keys)
            for arm, run in enumerate(runs):
                label = suite if len(runs) == 1 else f"{suite} {run.config.mode}"
                self._bars[arm, suite] = self._progress.add_task(label, total=total, status="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def episode(self, arm: int, result: EpisodeResult) -> None:
        """Move the bar of the episode's suite in that run; what was raised is told at once, in one line."""
        bar = (arm, result.key.suite)
        self._results[bar].append(result)
        self._progress.update(self._bars[bar], advance=1, status=_status(self._results[bar]))
        if result.error is not None:
            # What a policy says of itself is no markup: `[/INST]` is part of a prompt.
            outcome = result.outcome.value.replace("_", " ")
            self._rich.print(f"[red]{outcome}[/] in {result.key}: {escape(result.error)}", emoji=False)

    def interrupted(self) -> None:
        """Say what is safe and how to go on."""
        done = sum(map(len, self._results.values()))
        self._rich.print(
            f"Interrupted: {done} of {len(self._plan.keys) * len(self._runs)} episodes are recorded in "
            f"{self._where()}. The same command with --resume completes them.",
            markup=False,
            emoji=False,
        )

    def conclude(self, results: Sequence[Results]) -> None:
        """Print the results of the runs, compare the others with the first, and name the video to look at."""
        if len(self._runs) == 1:
            self._show_run(results[0])
        else:
            self._show_arms({run.config.mode: of for run, of in zip(self._runs, results, strict=True)})
        for run in self._runs:
            self._say(f"Records, texts and videos: {run.folder.path}")
        if any(result["overall"]["n_errors"] for result in results):
            self._say("The same command with --resume plays the episodes again that were errors.")
        self._name_best_video()

    def _show_run(self, results: Results) -> None:
        config = self._runs[0].config
        title = escape(f"{config.policy}, mode {config.mode}")
        self._rich.print(run_table(title, results, width=self._rich.width))
        overall = results["overall"]
        self._dim(MEANING, *say_invalid_actions(overall), *text_notes([overall]), *say_texts(overall))

    def _show_arms(self, arms: Mapping[str, Results]) -> None:
        policy = escape(self._runs[0].config.policy)
        title = f"{policy}, {len(self._plan.keys)} episodes: solved in each mode"
        self._rich.print(tasks_table(title, arms, width=self._rich.width))
        self._rich.print(arms_table(arms, width=self._rich.width))
        self._dim(MEANING, *text_notes([results["overall"] for results in arms.values()]))
        for mode, results in arms.items():
            said = [*say_invalid_actions(results["overall"]), *say_texts(results["overall"])]
            self._dim(*(f"{mode}: {line}" for line in said))
        for run in self._runs[1:]:
            self._rich.print()
            try:
                show(compare(self._runs[0].folder, run.folder), self._rich)
            except UsageError as error:  # of two runs that share no graded episode, nothing can be said
                self._rich.print(f"Not compared: {error}", markup=False)
        self._rich.print()

    def _name_best_video(self) -> None:
        """Of mode `unified` where it is among the modes: the last line is the path to open."""
        run = next((run for run in self._runs if run.config.mode == "unified"), self._runs[-1])
        best = find_best_video(run.folder) if run.config.video == "all" else None
        if best is not None:
            self._say(f"\n{best.why}")
            self._say(str(best.path))

    def _say(self, line: str) -> None:
        """As it is: brackets and colons mean nothing, and a path is not broken."""
        self._rich.print(line, soft_wrap=True, markup=False, emoji=False)

    def _dim(self, *lines: str) -> None:
        for line in lines:
            self._rich.print(line, style="dim", markup=False)

    def _where(self) -> str:
        return ", ".join(str(run.folder.path) for run in self._runs)


def _assets_in_words(plan: EpisodePlan) -> str:
    names = dict.fromkeys(suite.assets.name for suite in plan.suites.values() if suite.assets)
    return f"assets {escape(', '.join(names))} " if names else ""


def _status(results: list[EpisodeResult]) -> str:
    graded = [result for result in results if result.outcome is not Outcome.ERROR]
    solved = sum(result.outcome is Outcome.SUCCESS for result in graded)
    parts = [f"{100 * solved / len(graded):.0f} % success" if graded else "none graded"]
    latencies = [result.latency_ms["action"]["p50"] for result in graded if "action" in result.latency_ms]
    if latencies:
        parts.append(f"action {np.median(latencies):.0f} ms")
    if len(graded) < len(results):
        parts.append(f"[red]{len(results) - len(graded)} errors[/]")
    return ", ".join(parts)
