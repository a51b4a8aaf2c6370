"""The tables at the end of a run, or of several over the same episodes, and what their columns mean."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich import box
from rich.table import Table

from configs.cli import counted
from eval.metrics.language import HEADLINES
from eval.metrics.success import Results
from eval.report.labels import shortened

MEANING = (
    "action, frame: median milliseconds until a query's actions were there, and until all of it was done. "
    "Errors are not failures; they are in no other number."
)

_NUMBERS = {"n": 3, "success": 7, "95 %": 10, "action": 6, "frame": 6, "tok/s": 5, "errors": 6}
"""The columns of numbers, and the characters they need. Of errors there is one only where there are any."""

_ARM_WIDTH = 8
"""The columns of what each mode solved: the longest mode's name. Beside two, instructions are whole."""

_ID_WIDTH = 3
"""A task's number and a space before its instruction."""

_TEXTS = {"narration": "narr.", "memory": "mem."}
_TEXT_WIDTH = 5
"""The columns of language scores, of which there are only those that have one."""


def run_table(title: str, results: Results, *, width: int) -> Table:
    """One run: a row per task, a row per suite, and one over all where there are several."""
    shown = _Columns.of([results["overall"]])
    table = shown.table(title, "task", width)
    for suite, row in results["per_suite"].items():
        tasks = [task for task in results["per_task"] if task["task_group"] == suite]
        for label, task in zip(_labels(tasks, shown.room(width)), tasks, strict=True):
            table.add_row(label, *shown.cells(task))
        table.add_row(f"[bold]{suite}", *shown.cells(row), end_section=True)
    if len(results["per_suite"]) > 1:
        table.add_row("[bold]all suites", *shown.cells(results["overall"]))
    return table


def arms_table(arms: Mapping[str, Results], *, width: int) -> Table:
    """Several runs of the same episodes: a row per mode, for every suite by itself."""
    shown = _Columns.of([results["overall"] for results in arms.values()])
    table = shown.table(None, "mode", width)
    for suite in suites_of(arms):
        if len(suites_of(arms)) > 1:
            table.add_row(f"[bold]{suite}")
        for mode, results in arms.items():
            if suite in results["per_suite"]:
                table.add_row(mode, *shown.cells(results["per_suite"][suite]))
        table.add_section()
    return table


def tasks_table(title: str, arms: Mapping[str, Results], *, width: int) -> Table:
    """Several runs of the same episodes: a row per task, with the episodes that each mode solved."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    room = max(20, width - 2 - (_ARM_WIDTH + 1) * len(arms))
    table.add_column("task", no_wrap=True, max_width=room)
    for mode in arms:
        table.add_column(mode, justify="right", no_wrap=True, width=_ARM_WIDTH)
    for suite in suites_of(arms):
        if len(suites_of(arms)) > 1:
            table.add_row(f"[bold]{suite}")
        for label, solved in solved_by_task(arms, suite, room=room).items():
            table.add_row(label, *solved)
        table.add_section()
    return table


def suites_of(arms: Mapping[str, Results]) -> list[str]:
    """The suites that the runs touch."""
    return list(dict.fromkeys(suite for results in arms.values() for suite in results["per_suite"]))


def solved_by_task(
    arms: Mapping[str, Results], suite: str, *, room: int | None = None
) -> dict[str, list[str]]:
    """The suite's tasks, by number and instruction, to what each run solved of them: `7/10`.

    Instructions are whole, or as long as there is room for, in characters with the number.
    """
    tasks = {
        task["task_id"]: task
        for results in arms.values()
        for task in results["per_task"]
        if task["task_group"] == suite
    }
    labels = dict(zip(tasks, _labels(list(tasks.values()), room), strict=True))
    solved = [
        {
            task["task_id"]: f"{task['n_success']}/{task['n_episodes']}" if task["n_episodes"] else "error"
            for task in results["per_task"]
            if task["task_group"] == suite
        }
        for results in arms.values()
    ]
    return {label: [arm.get(task_id, "–") for arm in solved] for task_id, label in sorted(labels.items())}


def text_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the columns of language mean, and whether the texts are the policy's own."""
    scores = [(row, task) for row in rows for task in row["texts"]]
    notes = []
    if any(_graded(row, task) for row, task in scores):
        notes.append(
            "narr.: narrations wholly right, mem.: F1 of what is remembered, in %, when a text was born."
        )
        if len(rows) > 1:
            notes.append("Each row's are of the texts that it finished; the same texts are compared below.")
    if any(row["texts"][task]["n_oracle"] for row, task in scores):
        notes.append("The texts are an oracle's, who reads the truth aloud: their scores are a ceiling.")
    return notes


def say_texts(row: Mapping[str, Any]) -> list[str]:
    """A line for each language task: how many texts the columns are of, and how they had aged."""
    return [_say_task(row, task) for task in row["texts"]]


def say_invalid_actions(row: Mapping[str, Any]) -> list[str]:
    """A line if episodes ended in actions that could not be executed."""
    count = f"{row['n_invalid_actions']} of {counted(row['n_episodes'], 'episode')}"
    line = f"invalid actions: {count} ended in actions that could not be executed, unsolved."
    return [line] if row["n_invalid_actions"] else []


def _labels(tasks: Sequence[Mapping[str, Any]], room: int | None) -> list[str]:
    """The tasks by number and instruction, in at most `room` characters."""
    languages = [task["language"] for task in tasks]
    short = languages if room is None else shortened(languages, room - _ID_WIDTH)
    return [f"{task['task_id']:2d} {language}" for task, language in zip(tasks, short, strict=True)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Columns:
    """Which columns of numbers the rows of a table need.

    Attributes:
        widths: Heading to characters.
        texts: The language tasks with a column of scores.
    """

    widths: Mapping[str, int]
    texts: Sequence[str]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Self:
        """Those of rows that hold all there is."""
        most = max((row["n_episodes"] for row in rows), default=0)
        widths = {**_NUMBERS, "n": max(2, len(str(most)))}
        if not any(row["n_errors"] for row in rows):
            del widths["errors"]
        return cls(widths=widths, texts=[task for task in _TEXTS if any(_graded(row, task) for row in rows)])

    def room(self, width: int) -> int:
        """What is left for the first column of a table that wide."""
        numbers = sum(self.widths.values()) + len(self.widths) + (_TEXT_WIDTH + 1) * len(self.texts)
        return max(11, width - numbers - 3)

    def table(self, title: str | None, first: str, width: int) -> Table:
        """The table, without rows."""
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
        table.add_column(first, no_wrap=True, max_width=self.room(width))
        for heading, characters in self.widths.items():
            table.add_column(heading, justify="right", no_wrap=True, width=characters)
        for task in self.texts:
            table.add_column(_TEXTS[task], justify="right", no_wrap=True, width=_TEXT_WIDTH)
        return table

    def cells(self, row: Mapping[str, Any]) -> list[str]:
        """The numbers of a row."""
        low, high = row["pc_success_ci95"] or (None, None)
        latency = row["latency_ms"]
        return [
            str(row["n_episodes"]),
            "–" if row["pc_success"] is None else f"{row['pc_success']:.1f} %",
            "–" if low is None else f"{low:.1f}–{high:.1f}",
            _median(latency, "action"),
            _median(latency, "frame"),
            "–" if not row["tokens_per_s"] else f"{row['tokens_per_s']:.0f}",
            *([str(row["n_errors"])] if "errors" in self.widths else []),
            *(_when_born(row, task) for task in self.texts),
        ]


def _graded(row: Mapping[str, Any], task: str) -> bool:
    scores = row["texts"].get(task)
    return scores is not None and scores["n_texts"] > scores["n_not_graded"]


def _when_born(row: Mapping[str, Any], task: str) -> str:
    return f"{row['texts'][task]['born'][HEADLINES[task]]['pc']:.0f}" if _graded(row, task) else "–"


def _say_task(row: Mapping[str, Any], task: str) -> str:
    scores = row["texts"][task]
    graded = scores["n_texts"] - scores["n_not_graded"]
    line = f"{task}: {graded} of {counted(scores['n_texts'], 'text')} graded"
    if not graded:
        return f"{line}; what cannot be read is in no score (docs/language.md)."
    born, arrived = (scores[when][HEADLINES[task]]["pc"] for when in ("born", "arrived"))
    late = scores["staleness_ms"]
    return f"{line}, {born:.1f} % when born, {arrived:.1f} % when they arrived, {late:.0f} ms later."


def _median(latency: Mapping[str, Mapping[str, float]], stage: str) -> str:
    if stage not in latency:
        return "–"
    milliseconds = latency[stage]["p50"]
    return f"{milliseconds:.1f}" if milliseconds < 1000 else f"{milliseconds:.0f}"
