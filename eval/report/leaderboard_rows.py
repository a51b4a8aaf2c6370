"""One run on one suite as a row of a leaderboard: who acted, what was solved, how fast, what was said."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from eval.metrics.language import HEADLINES
from eval.metrics.language_results import LanguageRow
from eval.records.protocol import hash_of
from eval.records.reader import RunIdentity
from eval.report.leaderboard_ranks import Outcomes, ranks
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteRow:
    """What a leaderboard shows of a run's results on one suite, as `eval.metrics.success` defines them."""

    n_episodes: int
    n_errors: int
    pc_success: float | None
    pc_success_ci95: tuple[float, float] | None
    latency_ms: Mapping[str, Mapping[str, float]]
    tokens_per_s: float | None
    texts: Mapping[str, LanguageRow] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One run on one suite, and how each of its episodes there ended."""

    run: RunIdentity
    suite: str
    row: SuiteRow
    outcomes: Outcomes

    @property
    def protocol(self) -> str:
        """Hash of this suite's protocol: what a run did on other suites does not matter here."""
        return self.run.suite_hashes.get(self.suite, self.run.protocol_hash)

    @property
    def experiment(self) -> tuple[str, str, str]:
        """What runs must have in common to be ranked together: protocol, assets, and the very episodes."""
        return self.protocol, self.run.assets.digest, _digest(self.outcomes)


def _digest(keys: Iterable[EpisodeKey]) -> str:
    """What tells a set of episodes from all others."""
    return hash_of({"episodes": sorted(map(str, keys))})[:8]


def ranked_rows(entries: Sequence[Entry], texts: Sequence[str]) -> list[list[str]]:
    """The cells of runs that may be ranked together: best first, by rank and then by what was solved."""
    placed = zip(ranks([entry.outcomes for entry in entries]), entries, strict=True)
    best_first = sorted(
        placed,
        key=lambda item: (item[0], -(item[1].row.pc_success or 0), item[1].run.policy, item[1].run.mode),
    )
    return [[str(rank), *_cells(entry, texts, entries)] for rank, entry in best_first]


def _cells(entry: Entry, texts: Sequence[str], entries: Sequence[Entry]) -> list[str]:
    run, row = entry.run, entry.row
    low, high = row.pc_success_ci95 or (0.0, 100.0)
    cells = [
        policy_label(entry, entries),
        _mode_label(entry, entries),
        run.assets.name,
        str(row.n_episodes),
        f"{row.pc_success:.1f} %",
        f"{low:.1f} – {high:.1f}",
        _latency(row.latency_ms.get("action")),
        _latency(row.latency_ms.get("frame")),
        "–" if not row.tokens_per_s else f"{row.tokens_per_s:.0f}",
        *(language_cell(entry, task) for task in texts),
        str(row.n_errors),
        run.run_id,
    ]
    return [plain(cell) for cell in cells]


def policy_label(entry: Entry, entries: Sequence[Entry]) -> str:
    """Its name and its weights; in what it computes, only where another in the table does otherwise."""
    alike = len({other.run.dtype for other in entries}) == 1
    dtype = None if alike else entry.run.dtype or "its own dtype"
    return ", ".join(part for part in (entry.run.policy, entry.run.weights, dtype) if part)


def _mode_label(entry: Entry, entries: Sequence[Entry]) -> str:
    """Its mode; of `unified` how much a frame decodes, only where another in the table does otherwise."""
    run, unified = entry.run, [other.run for other in entries if other.run.mode == "unified"]
    parts = [run.mode]
    if run.mode == "unified" and len({other.tokens_per_frame for other in unified}) > 1:
        parts.append("k not said" if run.tokens_per_frame is None else f"k = {run.tokens_per_frame}")
    if run.mode == "unified" and len({other.deadline_ms for other in unified}) > 1:
        parts.append("no deadline" if run.deadline_ms is None else f"{run.deadline_ms:g} ms")
    return ", ".join(parts)


def plain(cell: str) -> str:
    """Text that cannot break a table."""
    return " ".join(cell.split()).replace("|", "\\|")


def language_cell(entry: Entry, task: str) -> str:
    """The headline measure at birth and at arrival, and of how many texts; an oracle's is marked."""
    row, measure = entry.row.texts.get(task), HEADLINES[task]
    if row is None or measure not in row.born or measure not in row.arrived:
        return "–"
    scores = f"{row.born[measure]['pc']:.1f} → {row.arrived[measure]['pc']:.1f}"
    graded = f"{row.n_texts - row.n_not_graded}/{row.n_texts}"
    return f"{scores}, {graded}{' (oracle)' if row.n_oracle else ''}"


def _latency(summary: Mapping[str, float] | None) -> str:
    return "–" if not summary else f"{summary['p50']:.1f} / {summary['p95']:.1f}"
