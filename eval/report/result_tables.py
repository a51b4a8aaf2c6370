"""Columns of aggregated results, the tables at the end of a run or an evaluation, and notes on them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from contracts.errors import pluralize
from eval.metrics.language import HEADLINES, TextRow
from eval.metrics.rows import ControlSteps, Row, RunRows, Spread, TaskRow
from eval.report.table import PAUSED, Column, Table, fitting, format_clock_of, number, percentage, shortened


def format_interval(row: Row) -> str:
    """The 95 % interval of the success rate."""
    interval = row.pc_success_ci95
    return "–" if interval is None else f"{interval.low:.1f}–{interval.high:.1f}"


N = Column(heading="n", cell=lambda row: str(row.n_episodes))
SUCCESS = Column(
    heading="success",
    cell=lambda row: percentage(row.pc_success, 1, " %"),
    legend="Errors are counted separately, not as failures.",
)
INTERVAL = Column(heading="95 % interval", short="95 %", cell=format_interval)
TIME = Column(
    heading="time to success (s)",
    short="time\ns",
    cell=lambda row: number(time.median if (time := row.time.time_to_success_s) else None, ".1f"),
    legend="time: median simulated seconds to success, of the episodes that a row solved.",
)
QUERIES = Column(
    heading="queries (Hz)",
    short="query\nHz",
    cell=lambda row: number(row.time.query_hz, ".1f" if (row.time.query_hz or 0) >= 10 else ".2f"),
    legend="query: queries per simulated second.",
)
HELD = Column(
    heading="held (%)",
    short="held\n%",
    optional=1,
    cell=lambda row: number(row.time.pc_held, ".0f"),
    legend="held: control steps in which the robot is held still.",
)
STALENESS = Column(
    heading="staleness (ms)",
    short="stale\nms",
    optional=2,
    cell=lambda row: number(row.staleness_ms, ".0f"),
    legend="stale: simulated time from a text's request to its delivery, mean.",
)
TOKENS = Column(
    heading="tokens/s",
    short="tok/s",
    optional=1,
    cell=lambda row: number(row.tokens_per_s or None, ".0f"),
)


def token_columns(rows: Sequence[Row]) -> list[Column]:
    """Tokens per second, if a row has any."""
    return [TOKENS] if any(row.tokens_per_s for row in rows) else []


ERRORS = Column(heading="errors", cell=lambda row: str(row.n_errors))

TEXT_HEADINGS = {"narration": "narr.", "memory": "mem.", "textual_memory": "goals"}
MEASURES = {
    "narration": "narrations wholly right",
    "memory": "F1 of memory",
    "textual_memory": "exact textual memories",
}


def graded_texts(row: Row, task: str) -> TextRow | None:
    """The texts of a language task; None if none of them could be graded."""
    texts = row.texts.get(task)
    is_graded = texts and HEADLINES[task] in texts.at_request and HEADLINES[task] in texts.on_delivery
    return texts if is_graded else None


def is_timed(row: Row) -> bool:
    """Whether an episode recorded its simulated time."""
    return row.time.query_hz is not None


def graded_tasks(rows: Sequence[Row]) -> list[str]:
    """The language tasks with a graded text in any row."""
    return [task for task in HEADLINES if any(graded_texts(row, task) for row in rows)]


def text_column(task: str) -> Column:
    """Headline measure at request and on delivery, and the graded texts; oracle texts are marked."""

    def cell(row: Row) -> str:
        if (texts := graded_texts(row, task)) is None:
            return "–"
        moments = (texts.at_request, texts.on_delivery)
        right = " → ".join(percentage(each[HEADLINES[task]].pc, 1) for each in moments)
        graded = f"{texts.n_texts - texts.n_not_graded}/{texts.n_texts}"
        return f"{right}, {graded}{' (oracle)' if texts.n_oracle else ''}"

    return Column(heading=f"{task} (%), graded", cell=cell)


def _short_text_column(task: str, clock: str) -> Column:
    """The headline measure at request and, on clocks other than `paused`, on delivery."""

    def cell(row: Row) -> str:
        if (texts := graded_texts(row, task)) is None:
            return "–"
        moments = [texts.at_request, *([] if clock == PAUSED else [texts.on_delivery])]
        return "→".join(percentage(each[HEADLINES[task]].pc, 0) for each in moments)

    heading = f"{TEXT_HEADINGS[task]}\n%"
    legend = f"{TEXT_HEADINGS[task]}: {MEASURES[task]}."
    return Column(heading=heading, cell=cell, legend=legend)


def _right_column(task: str) -> Column:
    """The headline measure on delivery alone; oracle texts are marked."""

    def cell(row: Row) -> str:
        if (texts := graded_texts(row, task)) is None:
            return "–"
        right = percentage(texts.on_delivery[HEADLINES[task]].pc, 0, " %")
        return f"{right}{' (oracle)' if texts.n_oracle else ''}"

    return Column(heading=f"{task.rpartition('_')[2]}\nright", cell=cell, optional=1)


def _median_column(stage: str, optional: int) -> Column:
    def cell(row: Row) -> str:
        if stage not in row.latency_ms:
            return "–"
        milliseconds = row.latency_ms[stage].p50
        return f"{milliseconds:.{1 if milliseconds < 1000 else 0}f}"

    legend = (
        "action, frame: median milliseconds until a query's actions were there, and until all of it was done."
    )
    return Column(heading=f"{stage}\nms", cell=cell, optional=optional, legend=legend)


def _has_partial_credit(row: Row) -> bool:
    """Whether an episode that was not solved has progress."""
    progress = row.progress.pc_progress
    return progress is not None and not math.isclose(progress, row.pc_success or 0.0)


def _progress_column(rows: Sequence[Row]) -> Column:
    """Mean progress, or the success rate of rows without partial credit; with an interval for one row."""
    interval = rows[0].progress.pc_progress_ci95 if len(rows) == 1 else None
    between = "" if interval is None else " (95 %: {:.1f}–{:.1f})".format(*interval)
    return Column(
        heading="progr.",
        cell=lambda row: percentage(
            row.pc_success if row.progress.pc_progress is None else row.progress.pc_progress, 1, " %"
        ),
        legend=f"progr.: criteria of the task that were met, mean over episodes{between}.",
    )


def _columns(rows: Sequence[Row], clock: str) -> list[Column]:
    measured = [_median_column("action", 3), _median_column("frame", 2), *token_columns(rows)]
    is_stale = any(row.staleness_ms is not None for row in rows)
    charged = [QUERIES, HELD, *([STALENESS] if is_stale else [])]
    return [
        N,
        SUCCESS,
        INTERVAL,
        *([_progress_column(rows)] if any(map(_has_partial_credit, rows)) else []),
        *([TIME] if any(map(is_timed, rows)) else []),
        *(measured if clock == PAUSED else charged),
        *([ERRORS] if any(row.n_errors for row in rows) else []),
        *(_short_text_column(task, clock) for task in graded_tasks(rows)),
    ]


_ID_WIDTH = 3  # characters of a task's number and the space after it
_MIN_LABEL = 13  # minimum width of a task's label, characters
_MIN_ROOM = 11  # minimum width of the first column, characters
_EDGES = 2  # characters beside a table's columns


def labelled(first: str, columns: Sequence[Column], groups: Sequence[Sequence[Any]], **look: Any) -> Table:
    """A table of pairs of a label and a row, which has the columns."""
    label = Column(heading=first, cell=lambda labelled: labelled[0], align="left")
    numbers = [column.of(lambda labelled: labelled[1]) for column in columns]
    return Table(columns=[label, *numbers], groups=groups, **look)


def run_table(title: str, run: RunRows, *, width: int) -> Table:
    """One run: a row per task, a row per suite, and a total if there are several suites."""
    overall, suites, clock = run.overall, run.suites, run.records.identity.clock
    label = max([_MIN_LABEL, *map(len, suites)])
    rows = [*run.tasks, *suites.values(), overall]
    columns, room = fitting(_columns([overall], clock), rows, width - _EDGES, beside=label)
    room = max(_MIN_ROOM, room)
    groups = []
    for suite, name in zip(suites, shortened(list(suites), room), strict=True):
        tasks = [task for task in run.tasks if task.suite == suite]
        groups.append([*zip(_labels(tasks, room), tasks, strict=True), (name, suites[suite])])
    if len(groups) > 1:
        groups.append([("all suites", overall)])
    return labelled("task", columns, groups, title=title, is_bold=lambda row: not isinstance(row[1], TaskRow))


_SOLVED = Column(heading="solved", cell=lambda row: f"{row.n_success}/{row.n_episodes}")
_SECONDS = dataclasses.replace(TIME, short="seconds to\nsuccess", optional=3)
_PER_SECOND = dataclasses.replace(QUERIES, short="queries\nper s", optional=2)
_SHORTEST = 20  # width that labels are cut to before columns are left out, characters


def runs_table(title: str, runs: Sequence[tuple[str, Row]], *, width: int) -> Table:
    """A row per label: success, time to it, queries per second, texts; for the end of an evaluation."""
    rows = [row for _, row in runs]
    columns = [
        _SOLVED,
        SUCCESS,
        INTERVAL,
        *([_SECONDS, _PER_SECOND] if any(map(is_timed, rows)) else []),
        *([ERRORS] if any(row.n_errors for row in rows) else []),
        *(_right_column(task) for task in graded_tasks(rows)),
    ]
    labels = [label for label, _ in runs]
    beside = min(_SHORTEST, max(map(len, labels)))
    columns, room = fitting(columns, rows, width - _EDGES, beside=beside)
    names = shortened(labels, max(_MIN_ROOM, room))
    return labelled("run", columns, [list(zip(names, rows, strict=True))], title=title)


def variants_table(variants: Mapping[str, RunRows], *, width: int) -> Table:
    """Several runs of the same episodes under one clock, by label: a row per run for each suite."""
    suites, overall = _suites_of(variants), [run.overall for run in variants.values()]
    names = suites if len(suites) > 1 else []
    groups = [
        [(label, run.suites[suite]) for label, run in variants.items() if suite in run.suites]
        for suite in suites
    ]
    rows = [*overall, *(row for group in groups for _, row in group)]
    columns = _columns(overall, next(iter(variants.values())).records.identity.clock)
    columns, _ = fitting(columns, rows, width - _EDGES, beside=max(map(len, [*variants, *names])))
    return labelled("run", columns, groups, names=names)


def tasks_table(title: str, variants: Mapping[str, RunRows], *, width: int) -> Table:
    """Several runs of the same episodes, by label: a row per task, with the episodes that each run solved."""
    tasks: dict[tuple[str, int], TaskRow] = {}
    counts: dict[tuple[str, str, int], str] = {}
    for label, run in variants.items():
        for task in run.tasks:
            tasks[task.suite, task.task_id] = task
            solved = f"{task.n_success}/{task.n_episodes}" if task.n_episodes else "error"
            counts[label, task.suite, task.task_id] = solved
    widths = [max(len(label), *(len(n) for at, n in counts.items() if at[0] == label)) for label in variants]
    room = max(20, width - 2 - sum(widths) - len(widths))
    suites, groups = _suites_of(variants), []
    for suite in suites:
        of_suite = [each for each in sorted(tasks) if each[0] == suite]
        groups.append(list(zip(_labels([tasks[each] for each in of_suite], room), of_suite, strict=True)))

    def count(label: str) -> Column:
        return Column(heading=label, cell=lambda row: counts.get((label, *row[1]), "–"))

    columns = [Column(heading="task", cell=lambda row: row[0], align="left"), *map(count, variants)]
    return Table(columns=columns, groups=groups, names=suites if len(suites) > 1 else [], title=title)


def _suites_of(variants: Mapping[str, RunRows]) -> list[str]:
    return list(dict.fromkeys(suite for run in variants.values() for suite in run.suites))


def _labels(tasks: Sequence[TaskRow], room: int) -> list[str]:
    short = shortened([task.instruction for task in tasks], room - _ID_WIDTH)
    return [f"{task.task_id:2d} {language}" for task, language in zip(tasks, short, strict=True)]


def table_notes(table: Table, runs: Sequence[RunRows]) -> list[str]:
    """Notes on the clock of the runs, the columns of their table, and how texts were graded."""
    rows, first = [run.overall for run in runs], runs[0].records.identity
    clock = first.clock
    notes = [table.legend]
    if clock != PAUSED:
        notes = [f"Clock {clock}: {format_clock_of(first)}.", *notes]
    if graded_tasks(rows):
        when = "when they were requested" + ("" if clock == PAUSED else " → on delivery")
        notes.append(f"Texts are graded {when}.")
        if len(rows) > 1:
            compared = "; the same texts are compared below" if clock == PAUSED else ""
            notes.append(f"Each row is graded on the texts that it finished{compared}.")
    if any(texts.n_oracle for row in rows for texts in row.texts.values()):
        notes.append("An oracle wrote the texts from the ground truth: their scores are an upper bound.")
    return notes


def format_results(row: Row) -> list[str]:
    """Lines below a table: (a, b) if time was charged, invalid actions if any, and the texts of each task."""
    of = f"of {pluralize(row.n_episodes, 'episode')}"
    count, untold = row.n_invalid_actions, row.n_without_truth
    invalid = f"invalid actions: {count} {of} ended with them. These are failures, which --resume keeps."
    return [
        *([format_steps(row.control_steps)] if row.control_steps else []),
        *([invalid] if count else []),
        *([f"no ground truth in {untold} {of}: why is in episodes.jsonl (truth_error)."] if untold else []),
        *(_format_task(task, texts) for task, texts in row.texts.items()),
    ]


def format_steps(steps: ControlSteps) -> str:
    """The (a, b) of a run in words: medians, with the range where queries differ."""

    def words(steps: Spread | None) -> str:
        if steps is None:
            return "–"
        spread = "" if steps.least == steps.most else f" [{steps.least:g} to {steps.most:g}]"
        return f"{steps.median:g}{spread}"

    return (
        f"(a, b) = ({words(steps.a)}, {words(steps.b)}) control steps until actions arrive, and until the "
        "next query (docs/clocks.md)."
    )


def _format_task(task: str, texts: TextRow) -> str:
    """How many texts of a language task could be graded, and how late they were."""
    unread, late = texts.n_not_graded, texts.staleness_ms
    line = f"{task}: {texts.n_texts - unread} of {pluralize(texts.n_texts, 'text')} graded, delivered "
    line += f"{late:.0f} ms (simulated) after their requests" if late else "at once"
    return f"{line}; unreadable texts are not scored (docs/language.md)." if unread else f"{line}."
