"""What a person sees while a run goes on: one progress bar per suite, then a table."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from rich import box
from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from eval.language import HEADLINES
from eval.plan import EpisodePlan
from eval.records import EpisodeResult, Outcome
from eval.runs import Run
from sim_envs.libero.assets import AssetSet

_NUMBERS = {"n": 3, "success": 8, "95 %": 11, "action": 7, "frame": 7, "tok/s": 6, "errors": 6}
"""The columns of numbers, and the characters they need."""

_TEXTS = {"narration": "narr.", "memory": "mem."}
_TEXT_WIDTH = 5
"""The columns of language scores, of which there are only those that have one."""


class Console:
    """The terminal of one run. Quiet but for the bars, the errors and the table."""

    def __init__(self, run: Run, plan: EpisodePlan, assets: AssetSet) -> None:
        self._rich = RichConsole(highlight=False)
        self._run = run
        self._plan = plan
        self._results: defaultdict[str, list[EpisodeResult]] = defaultdict(list)
        config = run.config
        self._rich.print(
            f"[bold]{config.policy}[/] in mode [bold]{config.mode}[/], {len(plan.keys)} episodes, "
            f"assets {assets.name} → {run.folder.path}",
            soft_wrap=True,
        )
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=self._rich,
        )
        self._bars: dict[str, TaskID] = {}
        for suite in plan.protocols:
            total = sum(key.suite == suite for key in plan.keys)
            self._bars[suite] = self._progress.add_task(suite, total=total, status="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def episode(self, result: EpisodeResult) -> None:
        """Move the bar of the episode's suite; an error is told at once, in one line."""
        suite = result.key.suite
        self._results[suite].append(result)
        self._progress.update(self._bars[suite], advance=1, status=_status(self._results[suite]))
        if result.outcome is Outcome.ERROR:
            self._rich.print(f"[red]error[/] in {result.key}: {result.error}", markup=True)

    def interrupted(self) -> None:
        """Say what is safe and how to go on."""
        done = sum(map(len, self._results.values()))
        self._rich.print(
            f"Interrupted: {done} of {len(self._plan.keys)} episodes are recorded in "
            f"{self._run.folder.path}. The same command with --resume completes them."
        )

    def table(self, results: Mapping[str, Any]) -> None:
        """Print the results: a row per task, a row per suite, and one over all where there are several."""
        config = self._run.config
        title = f"{config.policy}, mode {config.mode}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
        texts = [task for task in _TEXTS if _graded(results["overall"], task)]
        room = self._rich.width - sum(_NUMBERS.values()) - len(_NUMBERS) - 3 - (_TEXT_WIDTH + 1) * len(texts)
        table.add_column("task", no_wrap=True, max_width=max(11, room))
        for heading, width in _NUMBERS.items():
            table.add_column(heading, justify="right", no_wrap=True, width=width)
        for task in texts:
            table.add_column(_TEXTS[task], justify="right", no_wrap=True, width=_TEXT_WIDTH)
        for suite, row in results["per_suite"].items():
            for task in results["per_task"]:
                if task["task_group"] == suite:
                    table.add_row(f"{task['task_id']:2d} {task['language']}", *_cells(task, texts))
            table.add_row(f"[bold]{suite}", *_cells(row, texts), end_section=True)
        if len(results["per_suite"]) > 1:
            table.add_row("[bold]all suites", *_cells(results["overall"], texts))
        self._rich.print(table)
        self._rich.print(
            "action, frame: median milliseconds until a query's actions were there, and until all of it "
            "was done. Errors are not failures; they are in no other number.",
            style="dim",
        )
        for line in _say_texts(results["overall"]):
            self._rich.print(line, style="dim")
        self._rich.print(f"Records, texts and videos: {self._run.folder.path}", soft_wrap=True)


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


def _cells(row: Mapping[str, Any], texts: Sequence[str]) -> list[str]:
    low, high = row["pc_success_ci95"] or (None, None)
    latency = row["latency_ms"]
    return [
        str(row["n_episodes"]),
        "–" if row["pc_success"] is None else f"{row['pc_success']:.1f} %",
        "–" if low is None else f"{low:.1f}–{high:.1f}",
        _median(latency, "action"),
        _median(latency, "frame"),
        "–" if not row["tokens_per_s"] else f"{row['tokens_per_s']:.0f}",
        str(row["n_errors"]),
        *(_when_born(row, task) for task in texts),
    ]


def _graded(row: Mapping[str, Any], task: str) -> bool:
    scores = row["texts"].get(task)
    return scores is not None and scores["n_texts"] > scores["n_not_graded"]


def _when_born(row: Mapping[str, Any], task: str) -> str:
    return f"{row['texts'][task]['born'][HEADLINES[task]]['pc']:.0f}" if _graded(row, task) else "–"


def _say_texts(row: Mapping[str, Any]) -> list[str]:
    """What the columns of language mean, how many texts they are of, and whose."""
    lines = [_say_task(row, task) for task in row["texts"]]
    if any(_graded(row, task) for task in row["texts"]):
        meaning = (
            "narr.: narrations wholly right, mem.: F1 of what is remembered, in %, when a text was born."
        )
        lines.insert(0, meaning)
    if any(scores["n_oracle"] for scores in row["texts"].values()):
        lines.append("The texts are an oracle's, who reads the truth aloud: their scores are a ceiling.")
    return lines


def _say_task(row: Mapping[str, Any], task: str) -> str:
    scores = row["texts"][task]
    graded = scores["n_texts"] - scores["n_not_graded"]
    line = f"{task}: {graded} of {scores['n_texts']} texts graded"
    if not graded:
        return f"{line}; what cannot be read is in no score (docs/language.md)."
    born, arrived = (scores[when][HEADLINES[task]]["pc"] for when in ("born", "arrived"))
    late = scores["staleness_ms"]
    return f"{line}, {born:.1f} % when born, {arrived:.1f} % when they arrived, {late:.0f} ms later."


def _median(latency: Mapping[str, Mapping[str, float]], stage: str) -> str:
    return f"{latency[stage]['p50']:.1f}" if stage in latency else "–"
