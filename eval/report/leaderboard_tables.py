"""The tables of a leaderboard: recorded runs that may be ranked together, and those left out."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from configs.errors import UsageError
from eval.metrics.noninferiority import ERROR_BUDGET, exceeds
from eval.metrics.success import summarize
from eval.records.protocol import format_inputs
from eval.records.reader import read_episodes, read_identity, require_runs, warn_skipped
from eval.records.schema import RunFolder
from eval.report.clock_words import PAUSED, clock_label, format_clock_of
from eval.report.leaderboard_rows import (
    BoardColumn,
    Entry,
    RankedRow,
    SuiteRow,
    columns_of,
    graded_tasks,
    policy_label,
    ranked_rows,
)
from eval.report.plain_text import in_markdown_code

_ROWS = TypeAdapter(Mapping[str, SuiteRow])
_KEY_PARTS = ("task_id", "init_id", "seed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A run, or one suite of a run, that cannot be ranked."""

    run_id: str
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankedTable:
    """A table of comparable runs on one suite, best first.

    Attributes:
        title: Protocol, assets, episodes, and the clock unless paused, as Markdown.
        texts: The language tasks with a column.
        is_timed: Whether a run recorded its simulated time.
        columns: The columns after the rank.
        rows: The runs.
        inputs: Policy to its inputs, if they differ.
    """

    title: str
    texts: Sequence[str]
    is_timed: bool
    columns: Sequence[BoardColumn]
    rows: Sequence[RankedRow]
    inputs: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """All tables.

    Attributes:
        suites: Suite to its tables, the largest first.
        unranked: Runs and suites of runs that are left out.
        error_budget: Maximum percentage of errors of a ranked run.
    """

    suites: Mapping[str, Sequence[RankedTable]]
    unranked: Sequence[LeftOut]
    error_budget: float


def read_leaderboard(paths: Sequence[Path], *, error_budget: float = ERROR_BUDGET) -> Leaderboard:
    """The leaderboard of the runs in `paths`.

    Raises:
        UsageError: There is no run, a path is not a folder, or the budget is out of range.
    """
    if not 0 <= error_budget < 100:
        raise UsageError(
            f"an error budget of {error_budget:g} %; give one from 0 to less than 100, such as "
            f"{ERROR_BUDGET:g}"
        )
    entries: list[Entry] = []
    unranked: list[LeftOut] = []
    for folder in require_runs(paths):
        try:
            ranked, left_out = _read(folder, error_budget)
        except UsageError as error:
            warn_skipped(folder.path, error)
            ranked, left_out = [], [LeftOut(run_id=folder.run_id, reason=str(error))]
        entries += ranked
        unranked += left_out
    return Leaderboard(suites=_tables(entries), unranked=unranked, error_budget=error_budget)


def _read(folder: RunFolder, error_budget: float) -> tuple[list[Entry], list[LeftOut]]:
    """The suites of a run that can be ranked, and those that cannot."""
    run, episodes = read_identity(folder), read_episodes(folder)
    if run.status != "complete":
        done = f"{len(episodes)} of {run.n_planned} episodes"
        reason = f"{run.status}, {done} are recorded; complete it with --resume"
        return [], [LeftOut(run_id=run.run_id, reason=reason)]
    ranked, left_out = [], []
    for suite, row in _ROWS.validate_python(summarize(folder.path)["per_suite"]).items():
        total = row.n_episodes + row.n_errors
        if exceeds(row.n_errors, total, budget=error_budget):
            errors = f"{row.n_errors} of {total} episodes on {suite} ended in an error"
            reason = f"{errors}, more than {error_budget:g} %; run it again"
            left_out.append(LeftOut(run_id=run.run_id, reason=reason))
        else:
            outcomes = {key: episode.outcome for key, episode in episodes.items() if key.suite == suite}
            ranked.append(Entry(run=run, suite=suite, row=row, outcomes=outcomes))
    if not ranked and not left_out:
        left_out.append(LeftOut(run_id=run.run_id, reason="complete, but no episode is recorded"))
    return ranked, left_out


def _tables(entries: Sequence[Entry]) -> dict[str, list[RankedTable]]:
    """Tables by suite, the largest group of comparable runs first."""
    groups = defaultdict[tuple[str, tuple[str, str, str]], list[Entry]](list)
    for entry in entries:
        groups[entry.suite, entry.experiment].append(entry)
    tables: dict[str, list[RankedTable]] = {}
    for (suite, _), comparable in sorted(
        groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0])
    ):
        tables.setdefault(suite, []).append(_table(comparable))
    return tables


def _table(entries: Sequence[Entry]) -> RankedTable:
    texts, is_timed = graded_tasks(entries), any(entry.row.query_hz is not None for entry in entries)
    columns = columns_of(entries, texts, is_timed=is_timed)
    inputs = {policy_label(entry, entries): format_inputs(entry.run.policy_inputs) for entry in entries}
    return RankedTable(
        title=_title(entries),
        texts=texts,
        is_timed=is_timed,
        columns=columns,
        rows=ranked_rows(entries, columns),
        inputs=inputs if len(set(inputs.values())) > 1 else {},
    )


def _title(entries: Sequence[Entry]) -> str:
    """Protocol, assets, episodes and, unless all are paused, clocks; equal assets may have several names."""
    (protocol, assets, digest), keys = entries[0].experiment, entries[0].outcomes
    names = ", ".join(sorted({entry.run.assets.name for entry in entries}))
    tasks, states, seeds = (sorted({getattr(key, part) for key in keys}) for part in _KEY_PARTS)
    between = str(states[0]) if len(states) == 1 else f"{states[0]}–{states[-1]}"
    runs = {clock_label(entry.run): entry.run for entry in entries}
    clocks = [
        f"clock `{in_markdown_code(run.clock)}` ({format_clock_of(run)})" for _, run in sorted(runs.items())
    ]
    return (
        f"Protocol `{protocol}`, assets {names} ({assets[:8]}), episodes: {len(keys)}, tasks: {len(tasks)}, "
        f"initial states: {len(states)} ({between}), seed {', '.join(map(str, seeds))} (`{digest}`)"
        f"{'' if set(runs) == {PAUSED} else ', ' + ' or '.join(clocks)}:"
    )
