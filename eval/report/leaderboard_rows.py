"""A row of the leaderboard: one run on one suite."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from configs.hashing import hash_of
from eval.metrics.language import HEADLINES, LanguageRow
from eval.records.reader import RunIdentity
from eval.report.clock_words import MEASURED, PAUSED, clock_label
from eval.report.labels import number
from eval.report.leaderboard_ranks import Outcomes, Rank, ranks

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
