"""`python -m eval.leaderboard PATH…`: recorded runs as Markdown tables, ranked only where that is fair."""

import dataclasses
import importlib.resources
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from jinja2 import Environment, StrictUndefined
from pydantic import TypeAdapter, ValidationError

from configs.cli import run_app
from configs.errors import UsageError
from eval.language import HEADLINES
from eval.language_results import LanguageRow
from eval.recorded import RunIdentity, find_runs, read_episodes, read_identity
from eval.records import RunFolder
from eval.results import summarize

app = App(name="python -m eval.leaderboard", version_flags=[])

_TEMPLATE = importlib.resources.files("eval").joinpath("leaderboard.md.j2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteRow:
    """What a leaderboard shows of a run's results on one suite; `eval.results` says what each means."""

    n_episodes: int
    n_errors: int
    pc_success: float | None
    pc_success_ci95: tuple[float, float] | None
    latency_ms: Mapping[str, Mapping[str, float]]
    tokens_per_s: float | None
    texts: Mapping[str, LanguageRow] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Results:
    per_suite: Mapping[str, SuiteRow]


_RESULTS = TypeAdapter(_Results)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One run on one suite."""

    run: RunIdentity
    suite: str
    row: SuiteRow

    @property
    def protocol(self) -> str:
        """Hash of this suite's protocol: what a run did on other suites does not matter here."""
        return self.run.suite_hashes.get(self.suite, self.run.protocol_hash)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A run, or one suite of it, that cannot be ranked."""

    run_id: str
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankedTable:
    """Runs of one suite that may be ranked together, best first."""

    protocol: str
    assets: str
    texts: Sequence[str]
    rows: Sequence[Sequence[str]]


@app.default
def main(
    *paths: Path, output: Annotated[Path | None, Parameter(help="Write here instead of the terminal.")] = None
) -> None:
    """Print recorded runs as Markdown tables, one per suite.

    Args:
        paths: Folders of runs, or of single runs. Default: runs.
    """
    text = leaderboard(paths or (Path("runs"),))
    if output is None:
        sys.stdout.write(text)
    else:
        _write(output, text)


def leaderboard(paths: Sequence[Path]) -> str:
    """The runs in `paths` as Markdown.

    Raises:
        UsageError: if there is no run at all, or a path is not a folder.
    """
    folders = find_runs(paths)
    if not folders:
        raise UsageError(
            f"no run in {', '.join(map(str, paths))}; make one with `python -m eval.libero`, "
            "or give another folder"
        )
    entries: list[Entry] = []
    unranked: list[LeftOut] = []
    for folder in folders:
        try:
            ranked, left_out = _read(folder)
        except UsageError as error:
            ranked, left_out = [], [LeftOut(run_id=folder.run_id, reason=str(error))]
        entries += ranked
        unranked += left_out
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(suites=_tables(entries), unranked=unranked)


def _read(folder: RunFolder) -> tuple[list[Entry], list[LeftOut]]:
    """A run's suites: those that can be ranked, and those that cannot."""
    run = read_identity(folder)
    if run.status != "complete":
        done = len(read_episodes(folder))
        reason = f"{run.status}, {done} of {run.n_planned} episodes are recorded; complete it with --resume"
        return [], [LeftOut(run_id=run.run_id, reason=reason)]
    ranked, left_out = [], []
    for suite, row in _results(folder).per_suite.items():
        if row.pc_success is None:
            reason = f"no graded episode on {suite}, {row.n_errors} errors"
            left_out.append(LeftOut(run_id=run.run_id, reason=reason))
        else:
            ranked.append(Entry(run=run, suite=suite, row=row))
    if not ranked and not left_out:
        left_out.append(LeftOut(run_id=run.run_id, reason="complete, but no episode is recorded"))
    return ranked, left_out


def _results(folder: RunFolder) -> _Results:
    """What the run summed up when it was complete; made anew if it did not come to that."""
    try:
        if folder.results_path.exists():
            return _RESULTS.validate_json(folder.results_path.read_bytes())
        return _RESULTS.validate_python(summarize(folder.path))
    except ValidationError as error:
        raise UsageError(
            f"{folder.results_path} is not what a run writes: {error.errors()[0]['msg']}"
        ) from None


def _tables(entries: Sequence[Entry]) -> dict[str, list[RankedTable]]:
    """By suite; within it the largest group of comparable runs first."""
    groups: defaultdict[str, defaultdict[tuple[str, str], list[Entry]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for entry in entries:
        groups[entry.suite][entry.protocol, str(entry.run.assets)].append(entry)
    return {
        suite: [
            _table(protocol, assets, comparable)
            for (protocol, assets), comparable in sorted(
                tables.items(), key=lambda item: (-len(item[1]), item[0])
            )
        ]
        for suite, tables in sorted(groups.items())
    }


def _table(protocol: str, assets: str, entries: Sequence[Entry]) -> RankedTable:
    """Language tasks have a column where a text of any run was graded."""
    texts = [task for task in HEADLINES if any(_language(entry, task) != "–" for entry in entries)]
    return RankedTable(protocol=protocol, assets=assets, texts=texts, rows=_rows(entries, texts))


def _rows(entries: Sequence[Entry], texts: Sequence[str]) -> list[list[str]]:
    """Best first. Equal success shares a rank."""
    best_first = sorted(
        entries, key=lambda entry: (-(entry.row.pc_success or 0), entry.run.policy, entry.run.mode)
    )
    rates = [entry.row.pc_success for entry in best_first]
    return [[str(1 + rates.index(entry.row.pc_success)), *_cells(entry, texts)] for entry in best_first]


def _cells(entry: Entry, texts: Sequence[str]) -> list[str]:
    run, row = entry.run, entry.row
    low, high = row.pc_success_ci95 or (0.0, 100.0)
    cells = [
        run.policy,
        run.mode,
        run.assets.name,
        str(row.n_episodes),
        f"{row.pc_success:.1f} %",
        f"{low:.1f} – {high:.1f}",
        _latency(row.latency_ms.get("action")),
        _latency(row.latency_ms.get("frame")),
        "–" if not row.tokens_per_s else f"{row.tokens_per_s:.0f}",
        *(_language(entry, task) for task in texts),
        str(row.n_errors),
        run.run_id,
    ]
    return [" ".join(cell.split()).replace("|", "\\|") for cell in cells]


def _language(entry: Entry, task: str) -> str:
    """The headline measure at birth and at arrival; an oracle's is marked."""
    row, measure = entry.row.texts.get(task), HEADLINES[task]
    if row is None or measure not in row.born or measure not in row.arrived:
        return "–"
    scores = f"{row.born[measure]['pc']:.1f} → {row.arrived[measure]['pc']:.1f}"
    return f"{scores} (oracle)" if row.n_oracle else scores


def _latency(summary: Mapping[str, float] | None) -> str:
    return "–" if not summary else f"{summary['p50']:.1f} / {summary['p95']:.1f}"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {str(path)!r}: {error.strerror}; give --output another file"
        ) from None


if __name__ == "__main__":
    run_app(app)
