"""The tables of a leaderboard: runs that may be ranked together, their ranks, and those left out."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from configs.errors import UsageError
from configs.hashing import hash_of
from eval.metrics.language import HEADLINES, LanguageRow
from eval.metrics.noninferiority import ERROR_BUDGET, exceeds
from eval.metrics.statistics import mcnemar_exact
from eval.metrics.success import summarize
from eval.records.protocol import format_inputs
from eval.records.reader import RunIdentity, read_episodes, read_identity, require_runs, warn_skipped
from eval.records.schema import Outcome, RunFolder
from eval.report.labels import MEASURED, PAUSED, clock_label, format_clock_of, number
from eval.report.plain_text import in_markdown_code
from sim_envs.world import EpisodeKey

_LEVEL = 0.05

Outcomes = Mapping[EpisodeKey, Outcome]
"""Outcomes of a run's episodes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rank:
    """The ranks that the data allow for a run.

    Attributes:
        best: One plus the number of significantly better runs: the rank that is shown.
        worst: The number of runs minus that of significantly worse ones.
    """

    best: int
    worst: int

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best}–{self.worst}"


def ranks(runs: Sequence[Outcomes]) -> list[Rank]:
    """The rank of each run.

    Chatbot Arena's rule with a paired test: a run is better if it solves significantly more of the common
    episodes (McNemar's exact test at 5 %).
    """
    better = [[_is_better(one, other) for other in runs] for one in runs]
    return [
        Rank(best=1 + sum(row[place] for row in better), worst=len(runs) - sum(better[place]))
        for place in range(len(runs))
    ]


def _is_better(one: Outcomes, other: Outcomes) -> bool:
    graded = [
        (outcome is Outcome.SUCCESS, other[key] is Outcome.SUCCESS)
        for key, outcome in one.items()
        if Outcome.ERROR not in (outcome, other.get(key, Outcome.ERROR))
    ]
    only_one, only_other = graded.count((True, False)), graded.count((False, True))
    return only_one > only_other and mcnemar_exact(only_one, only_other) < _LEVEL


_CONTROLS = {"noop": "floor", "random": "floor", "expert": "ceiling"}
"""Reference policies."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteRow:
    """The results of a run on one suite that a leaderboard shows; see `eval.metrics.success`."""

    n_episodes: int
    n_errors: int
    pc_success: float | None
    pc_success_ci95: tuple[float, float] | None
    latency_ms: Mapping[str, Mapping[str, float]]
    tokens_per_s: float | None
    time_to_success_s: Mapping[str, float] | None = None
    query_hz: float | None = None
    staleness_ms: float | None = None
    texts: Mapping[str, LanguageRow] = dataclasses.field(default_factory=dict)

    @property
    def median_s(self) -> float | None:
        """Median simulated seconds to success."""
        return (self.time_to_success_s or {}).get("median")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One run on one suite, with the outcomes of its episodes."""

    run: RunIdentity
    suite: str
    row: SuiteRow
    outcomes: Outcomes

    @property
    def protocol(self) -> str:
        """Hash of this suite's protocol; other suites of the run do not matter."""
        return self.run.suite_hashes.get(self.suite, self.run.protocol_hash)

    @property
    def experiment(self) -> tuple[str, str, str]:
        """Protocol, assets and episodes, which must be equal for runs to be ranked together."""
        episodes = hash_of({"episodes": sorted(map(str, self.outcomes))})[:8]
        return self.protocol, self.run.assets.digest, episodes


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoardColumn:
    """A column of a table of runs.

    Attributes:
        heading: What it shows.
        rule: Its alignment in Markdown.
        cell: Maps a run, and all runs of the table, to its text.
    """

    heading: str
    cell: Callable[[Entry, Sequence[Entry]], str]
    rule: str = "--:"


def graded_tasks(entries: Sequence[Entry]) -> list[str]:
    """The language tasks with a graded text in any run."""
    return [task for task in HEADLINES if any(language_cell(entry, task) != "–" for entry in entries)]


def columns_of(entries: Sequence[Entry], texts: Sequence[str], *, is_timed: bool) -> list[BoardColumn]:
    """The columns after the rank, of runs that may be ranked together.

    Measured latency and tokens per second have columns if a run is on clock `paused` or `measured`.

    Args:
        entries: The runs.
        texts: The language tasks with a column.
        is_timed: Whether a run recorded its simulated time.
    """
    own_latency = any(entry.run.clock in (PAUSED, MEASURED) for entry in entries)
    return [
        *_WHO,
        *([_CONTROL] if any(_CONTROL.cell(entry, entries) for entry in entries) else []),
        *_SOLVED,
        *(_TIMED if is_timed else ()),
        *(_LATENCY if own_latency else ()),
        *map(_language_column, texts),
        *([_STALENESS] if is_timed and texts else ()),
        *_RECORD,
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankedRow:
    """A run in a table, with the text of each column."""

    rank: Rank
    entry: Entry
    cells: Sequence[str]


def ranked_rows(entries: Sequence[Entry], columns: Sequence[BoardColumn]) -> list[RankedRow]:
    """The rows of comparable runs, by rank and then by success rate."""
    placed = zip(ranks([entry.outcomes for entry in entries]), entries, strict=True)
    best_first = sorted(
        placed,
        key=lambda item: (item[0].best, -(item[1].row.pc_success or 0), item[1].run.policy, item[1].run.mode),
    )
    return [
        RankedRow(rank=rank, entry=entry, cells=[column.cell(entry, entries) for column in columns])
        for rank, entry in best_first
    ]


def policy_label(entry: Entry, entries: Sequence[Entry]) -> str:
    """Name and weights of the policy; its dtype only if it differs within the table."""
    alike = len({other.run.dtype for other in entries}) == 1
    dtype = None if alike else entry.run.dtype or "its own dtype"
    return ", ".join(part for part in (entry.run.policy, entry.run.weights, dtype) if part)


def _mode_label(entry: Entry, entries: Sequence[Entry]) -> str:
    """Mode; token budget and clock only if they differ within the table."""
    run, alike = entry.run, [other.run for other in entries if other.run.mode == entry.run.mode]
    parts = [run.mode]
    if run.text_every is not None:
        parts.append("a text every " + ("query" if run.text_every == 1 else f"{run.text_every} queries"))
    if len({other.tokens_per_frame for other in alike}) > 1:
        parts.append("k not said" if run.tokens_per_frame is None else f"k = {run.tokens_per_frame}")
    if len({other.deadline_ms for other in alike}) > 1:
        parts.append("no deadline" if run.deadline_ms is None else f"{run.deadline_ms:g} ms")
    if len({clock_label(other.run) for other in entries}) > 1:
        parts.append(clock_label(run))
    return ", ".join(parts)


def language_cell(entry: Entry, task: str) -> str:
    """Headline measure at request and on delivery, and the graded texts; oracle texts are marked."""
    row, measure = entry.row.texts.get(task), HEADLINES[task]
    if row is None or measure not in row.at_request or measure not in row.on_delivery:
        return "–"
    scores = f"{row.at_request[measure]['pc']:.1f} → {row.on_delivery[measure]['pc']:.1f}"
    graded = f"{row.n_texts - row.n_not_graded}/{row.n_texts}"
    return f"{scores}, {graded}{' (oracle)' if row.n_oracle else ''}"


def _latency(summary: Mapping[str, float] | None) -> str:
    return "–" if not summary else f"{summary['p50']:.1f} / {summary['p95']:.1f}"


def _interval(entry: Entry, _: Sequence[Entry]) -> str:
    low, high = entry.row.pc_success_ci95 or (0.0, 100.0)
    return f"{low:.1f} – {high:.1f}"


def _language_column(task: str) -> BoardColumn:
    return BoardColumn(
        heading=f"{task} (%), graded", rule=":-:", cell=lambda entry, _: language_cell(entry, task)
    )


_WHO = (
    BoardColumn(heading="policy", rule=":--", cell=policy_label),
    BoardColumn(heading="mode", rule=":--", cell=_mode_label),
    BoardColumn(heading="assets", rule=":--", cell=lambda entry, _: entry.run.assets.name),
)
_CONTROL = BoardColumn(
    heading="control", rule=":--", cell=lambda entry, _: _CONTROLS.get(entry.run.policy, "")
)
_SOLVED = (
    BoardColumn(heading="n", cell=lambda entry, _: str(entry.row.n_episodes)),
    BoardColumn(heading="success", cell=lambda entry, _: f"{entry.row.pc_success:.1f} %"),
    BoardColumn(heading="95 % interval", rule=":-:", cell=_interval),
)
_TIMED = (
    BoardColumn(heading="time to success (s)", cell=lambda entry, _: number(entry.row.median_s, ".1f")),
    BoardColumn(heading="queries (Hz)", cell=lambda entry, _: number(entry.row.query_hz, ".2f")),
)
_LATENCY = (
    BoardColumn(heading="action (ms)", cell=lambda entry, _: _latency(entry.row.latency_ms.get("action"))),
    BoardColumn(heading="query (ms)", cell=lambda entry, _: _latency(entry.row.latency_ms.get("frame"))),
    BoardColumn(heading="tokens/s", cell=lambda entry, _: number(entry.row.tokens_per_s or None, ".0f")),
)
_STALENESS = BoardColumn(
    heading="staleness (ms)", cell=lambda entry, _: number(entry.row.staleness_ms, ".0f")
)
GROUP_COLUMNS = (
    BoardColumn(heading="weights", rule=":--", cell=lambda entry, _: entry.run.weights or "not known"),
    BoardColumn(heading="clock", rule=":--", cell=lambda entry, _: clock_label(entry.run)),
)
"""Parts of other columns' labels, to group rows by."""
_RECORD = (
    BoardColumn(heading="errors", cell=lambda entry, _: str(entry.row.n_errors)),
    BoardColumn(heading="run", rule=":--", cell=lambda entry, _: entry.run.run_id),
)


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
