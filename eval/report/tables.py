"""The tables at the end of a run or an evaluation, and notes on their columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from configs.errors import pluralize
from eval.metrics.language import HEADLINES
from eval.metrics.success import Results
from eval.report.labels import PAUSED, format_clock, shortened
from eval.report.table_columns import (
    Column,
    empty_table,
    first_column_room,
    fitting_columns,
    is_graded,
    is_timed,
)

_VARIANT_WIDTH = 8
"""Width of a mode's column: its longest name."""

_ID_WIDTH = 3
"""Characters of a task's number and the space after it."""

_MIN_LABEL = 13
"""Minimum width of a task's label, characters."""

_TIME_NOTE = "time: median simulated seconds to success, of the episodes that a row solved."
_PROGRESS_NOTE = "progr.: criteria of the task that were met, mean over episodes."
_MEASURED_NOTE = (
    "action, frame: median milliseconds until a query's actions were there, and until all of it was done."
)
_CHARGED_NOTE = "query: queries per simulated second. held: control steps in which the robot is held still."
_STALE_NOTE = "stale: simulated time from a text's request to its delivery, mean."
_ERRORS_NOTE = "Errors are counted separately, not as failures."

_RIGHT = {"narration": "{} right", "memory": "F1 {}", "textual_memory": "exact match {}"}
"""The headline measure of a language task in words."""


def run_table(title: str, results: Results, *, width: int) -> Table:
    """One run: a row per task, a row per suite, and a total if there are several suites."""
    columns = fitting_columns([results["overall"]], clock=results["clock"], width=width, label=_MIN_LABEL)
    table = empty_table(title, "task", columns, width)
    for suite, row in results["per_suite"].items():
        tasks = [task for task in results["per_task"] if task["task_group"] == suite]
        for label, task in zip(_labels(tasks, first_column_room(columns, width)), tasks, strict=True):
            table.add_row(label, *_cells(columns, task))
        table.add_row(f"[bold]{escape(suite)}", *_cells(columns, row), end_section=True)
    if len(results["per_suite"]) > 1:
        table.add_row("[bold]all suites", *_cells(columns, results["overall"]))
    return table


def variants_table(variants: Mapping[str, Results], *, width: int) -> Table:
    """Several runs of the same episodes under one clock: a row per mode for each suite."""
    suites = suites_of(variants)
    rows = [results["overall"] for results in variants.values()]
    label = max(map(len, [*variants, *(suites if len(suites) > 1 else ())]))
    clock = next(iter(variants.values()))["clock"]
    columns = fitting_columns(rows, clock=clock, width=width, label=label)
    table = empty_table(None, "mode", columns, width)
    for suite in suites:
        if len(suites) > 1:
            table.add_row(f"[bold]{escape(suite)}")
        for mode, results in variants.items():
            if suite in results["per_suite"]:
                table.add_row(mode, *_cells(columns, results["per_suite"][suite]))
        table.add_section()
    return table


def tasks_table(title: str, variants: Mapping[str, Results], *, width: int) -> Table:
    """Several runs of the same episodes: a row per task, with the episodes that each mode solved."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    room = max(20, width - 2 - (_VARIANT_WIDTH + 1) * len(variants))
    table.add_column("task", no_wrap=True, max_width=room)
    for mode in variants:
        table.add_column(mode, justify="right", no_wrap=True, width=_VARIANT_WIDTH)
    for suite in suites_of(variants):
        if len(suites_of(variants)) > 1:
            table.add_row(f"[bold]{escape(suite)}")
        for label, solved in solved_by_task(variants, suite, room=room).items():
            table.add_row(label, *solved)
        table.add_section()
    return table


def suites_of(variants: Mapping[str, Results]) -> list[str]:
    """The suites of the runs, in order of first appearance."""
    return list(dict.fromkeys(suite for results in variants.values() for suite in results["per_suite"]))


def solved_by_task(
    variants: Mapping[str, Results], suite: str, *, room: int | None = None
) -> dict[str, list[str]]:
    """Task label (number and instruction) to the episodes that each run solved: `7/10`.

    Labels are shortened to `room` characters if given.
    """
    tasks = {
        task["task_id"]: task
        for results in variants.values()
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
        for results in variants.values()
    ]
    return {
        label: [variant.get(task_id, "–") for variant in solved] for task_id, label in sorted(labels.items())
    }


def table_notes(runs: Sequence[Results]) -> list[str]:
    """Notes on the columns of runs under one clock, and on oracle texts."""
    rows = [results["overall"] for results in runs]
    clock: str = runs[0]["clock"]
    time = [_TIME_NOTE] if any(map(is_timed, rows)) else []
    time += [_format_progress(rows)] if any(row["pc_progress"] is not None for row in rows) else []
    if clock == PAUSED:
        notes = [" ".join([*time, _MEASURED_NOTE, _ERRORS_NOTE])]
    else:
        words = format_clock(
            clock,
            runs[0]["while_waiting"],
            overlap=runs[0].get("overlap", "skip"),
            device=runs[0]["clock_device"],
        )
        stale = [_STALE_NOTE] if any(row["staleness_ms"] is not None for row in rows) else []
        notes = [f"Clock {clock}: {words}.", " ".join([*time, _CHARGED_NOTE, *stale, _ERRORS_NOTE])]
    return [*notes, *_text_notes(rows, clock)]


def _text_notes(rows: Sequence[Mapping[str, Any]], clock: str) -> list[str]:
    scores = [(row, task) for row in rows for task in row["texts"]]
    notes = []
    if any(is_graded(row, task) for row, task in scores):
        when = "when a text was requested" if clock == PAUSED else "when a text was requested → on delivery"
        notes.append(
            "narr.: narrations wholly right, mem.: F1 of what is remembered, goals: exact textual memories, "
            f"{when}."
        )
        if len(rows) > 1:
            compared = "; the same texts are compared below" if clock == PAUSED else ""
            notes.append(f"Each row is graded on the texts that it finished{compared}.")
    if any(row["texts"][task]["n_oracle"] for row, task in scores):
        notes.append("An oracle wrote the texts from the ground truth: their scores are an upper bound.")
    return notes


def _format_progress(rows: Sequence[Mapping[str, Any]]) -> str:
    """The note on progress, with its interval if there is one run."""
    interval = rows[0]["pc_progress_ci95"] if len(rows) == 1 else None
    if interval is None:
        return _PROGRESS_NOTE
    return f"{_PROGRESS_NOTE[:-1]} (95 %: {interval[0]:.1f}–{interval[1]:.1f})."


def format_results(row: Mapping[str, Any]) -> list[str]:
    """Lines below a table: (a, b) if time was charged, invalid actions if any, and the texts of each task."""
    count = f"{row['n_invalid_actions']} of {pluralize(row['n_episodes'], 'episode')}"
    invalid = f"invalid actions: {count} ended in actions that could not be executed, unsolved."
    return [
        *([format_steps(row["control_steps"])] if row["control_steps"] else []),
        *([invalid] if row["n_invalid_actions"] else []),
        *(_format_task(row, task) for task in row["texts"]),
    ]


def format_steps(steps: Mapping[str, Mapping[str, float]]) -> str:
    """The (a, b) of a run in words: medians, with the range where queries differ."""
    a, b = (_format_range(steps.get(name)) for name in ("a", "b"))
    return (
        f"(a, b) = ({a}, {b}) control steps until actions arrive, and until the next query (docs/clocks.md)."
    )


def _format_range(steps: Mapping[str, float] | None) -> str:
    if steps is None:
        return "–"
    same = steps["least"] == steps["most"]
    return f"{steps['median']:g}" + ("" if same else f" [{steps['least']:g} to {steps['most']:g}]")


def _labels(tasks: Sequence[Mapping[str, Any]], room: int | None) -> list[str]:
    """The tasks by number and instruction, in at most `room` characters."""
    languages = [task["language"] for task in tasks]
    short = languages if room is None else shortened(languages, room - _ID_WIDTH)
    return [f"{task['task_id']:2d} {language}" for task, language in zip(tasks, short, strict=True)]


def _cells(columns: Sequence[Column], row: Mapping[str, Any]) -> list[str]:
    return [column.cell(row) for column in columns]


def _format_task(row: Mapping[str, Any], task: str) -> str:
    """Graded texts of a language task, their accuracy and their staleness."""
    scores = row["texts"][task]
    graded = scores["n_texts"] - scores["n_not_graded"]
    line = f"{task}: {graded} of {pluralize(scores['n_texts'], 'text')} graded"
    if not is_graded(row, task):
        return f"{line}; what cannot be read is in no score (docs/language.md)."
    requested, delivered = (
        f"{scores[when][HEADLINES[task]]['pc']:.1f} %" for when in ("at_request", "on_delivery")
    )
    right = _RIGHT[task].format(requested)
    late = scores["staleness_ms"]
    if not late:
        return f"{line}; {right}, delivered at once."
    return f"{line}; {right} when requested, {delivered} on delivery, {late:.0f} ms (simulated) later."
