"""Leaderboards: runs that may be ranked together, their ranks, and those left out; and their files."""

import dataclasses
import json
import operator
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from configs.assets import badged
from configs.cli import pieces_of
from configs.console import visible_text
from configs.load import load, names
from configs.published import PublishedConfig
from contracts.clock import PAUSED
from contracts.episode import EpisodeKey, EpisodeResult
from contracts.errors import UsageError, pluralize, unknown
from contracts.hashing import hash_of
from contracts.motion import Static
from contracts.perturbation import format_perturbations
from eval.metrics.noninferiority import ERROR_BUDGET, exceeds
from eval.metrics.results_file import fields_of
from eval.metrics.rows import Row, RunRows, Seeds, kinds_of, rate_of, rates_of
from eval.records.protocol import format_inputs
from eval.records.reader import RunIdentity, RunRecords, require_runs, warn_skipped
from eval.report import result_tables as results
from eval.report.comparison import outcomes_apart, outcomes_of
from eval.report.figures import colours_of
from eval.report.labels import labels_of
from eval.report.pages.site import page_file, whisker, write_page
from eval.report.perturbations import control_of
from eval.report.table import (
    Column,
    Table,
    clock_label,
    format_clock_of,
    in_latex,
    in_markdown,
    in_markdown_code,
    is_known,
    to_csv,
    to_latex,
    to_markdown,
)

_LEVEL = 0.05
_PERTURBED = "success in the same episodes under a perturbation (docs/perturbations.md)"

Episodes = Mapping[EpisodeKey, EpisodeResult]


class Rank(NamedTuple):
    """The ranks that the data allow for a run: the best one, which is shown, to the worst one."""

    best: int = 1
    worst: int = 1

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best}–{self.worst}"


def ranks(runs: Sequence[Episodes], *, paired: bool = True) -> list[Rank]:
    """The rank of each run: from one plus the number of better runs to all runs but the worse ones.

    Chatbot Arena's rule with a paired test: a run is better if it solves significantly more of the common
    episodes (McNemar's exact test at 5 %). Without `paired`, episodes are independent ones of the same tasks.
    """

    def is_better(one: Episodes, other: Episodes) -> bool:
        if paired:
            pairs = outcomes_of([(episode, other[key]) for key, episode in one.items() if key in other])
        else:
            pairs = outcomes_apart([*one.values()], [*other.values()])
        return (pairs.difference or 0.0) < 0 and pairs.p_value < _LEVEL

    better = [[is_better(one, other) for other in runs] for one in runs]
    return [
        Rank(best=1 + sum(row[place] for row in better), worst=len(runs) - sum(better[place]))
        for place in range(len(runs))
    ]


_OF_ONE_RUN = {
    *("run_id", "protocol_hash", "suite_hashes", "world_hashes", "control_hashes"),
    *("status", "n_planned", "variants", "limits_s", "margin", "time_margin"),
}
"""Fields of an identity in which runs of one policy on several suites may differ."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One run on one suite, or one setting on several: aggregated results and the episodes."""

    run: RunIdentity
    suite: str
    row: Row
    episodes: Episodes
    # Heading to the entry of each suite, of one run or of several; empty for one suite.
    parts: Mapping[str, "Entry"] = dataclasses.field(default_factory=dict)
    # Perturbations to the entry of the same episodes under them; empty if none was played.
    perturbed: Mapping[str, "Entry"] = dataclasses.field(default_factory=dict)
    label: str = ""  # its name in its table: the policy, and what else tells it apart
    rank: Rank = dataclasses.field(default_factory=Rank)  # its rank in its table

    @property
    def protocol(self) -> str:
        """Hash of the protocol of this suite, or of these; other suites of the run do not matter."""
        if self.parts:
            return hash_of({name: part.protocol for name, part in self.parts.items()})[:8]
        return self.run.suite_hashes.get(self.suite, self.run.protocol_hash)

    @property
    def experiment(self) -> tuple[str, str, str]:
        """Protocol, assets and episodes, which must be equal for runs to be ranked together."""
        episodes = hash_of({"episodes": sorted(map(str, self.episodes))})[:8]
        return self.protocol, self.run.assets.digest, episodes


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankedTable:
    """A table of comparable runs on one suite, best first; its rows are entries."""

    # Protocol with what replaces parts of the published one, assets, episodes, and the clock unless paused,
    # as Markdown.
    title: str
    table: Table
    inputs: Mapping[str, str]  # policy to its inputs, if they differ
    # Policy to the success rates of the control and under each perturbation, as the page's bars show them.
    bars: Mapping[str, Sequence[Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """All tables."""

    suites: Mapping[str, Sequence[RankedTable]]  # suite to its tables, the largest first
    unranked: Sequence[Mapping[str, str]]  # runs, or suites of runs, left out, each as `run_id` and `reason`
    # Title to success rates that others published, never ranked with runs; empty unless asked for.
    published: Mapping[str, Table] = dataclasses.field(default_factory=dict)

    @property
    def tables(self) -> list[RankedTable]:
        """All tables of runs."""
        return [table for of_suite in self.suites.values() for table in of_suite]

    @property
    def summarized(self) -> set[str]:
        """The suites of which every row is part of a row of a table of several suites."""
        entries: list[Entry] = [entry for table in self.tables for entry in table.table.rows]
        parts = {(part.run.run_id, part.suite) for entry in entries for part in entry.parts.values()}
        alone = {each.suite for each in entries if (each.run.run_id, each.suite) not in parts}
        return {suite for _, suite in parts} - alone

    def showing(self, columns: str | None) -> "Leaderboard":
        """The leaderboard with columns named `a,b`, which each table shows as far as it has them.

        Raises:
            UsageError: No table has a column of a name.
        """
        if columns is None:
            return self
        names = pieces_of([columns])
        known = dict.fromkeys(column.name for table in self.tables for column in table.table.columns)
        for name in names:
            if self.tables and name not in known:
                raise unknown("column", name, known)
        suites = {
            suite: [dataclasses.replace(each, table=each.table.showing(names)) for each in tables]
            for suite, tables in self.suites.items()
        }
        return dataclasses.replace(self, suites=suites)


def read_leaderboard(paths: Sequence[Path], *, published: bool = False) -> Leaderboard:
    """The leaderboard of the runs in `paths`, with the figures that others published beside it if asked for.

    Raises:
        UsageError: There is no run, or a path is not a folder.
    """
    entries: list[Entry] = []
    unranked: list[dict[str, str]] = []
    for records in require_runs(paths):
        try:
            ranked, left_out = _read(records)
        except UsageError as error:
            warn_skipped(records.folder.path, error)
            ranked, left_out = [], [{"run_id": records.folder.run_id, "reason": str(error)}]
        entries += ranked
        unranked += left_out
    entries = _beside_controls(entries)
    averages: list[Entry] = []
    tables_of_papers = [load(PublishedConfig, name) for name in names(PublishedConfig)]
    for paper in tables_of_papers:
        averages += _averages(entries, paper.suites, paper.title, pooled=bool(paper.columns))
    papers = [{part.suite for part in entry.parts.values()} for entry in averages]
    together = defaultdict[str, set[str]](set)
    for entry in entries:
        together[entry.run.run_id].add(entry.suite)
    for suites in sorted({tuple(sorted(each)) for each in together.values()}):
        if len(suites) > 1 and not any(paper.issuperset(suites) for paper in papers):
            averages += _averages(entries, dict(zip(suites, suites, strict=True)), ", ".join(suites))
    played = {entry.suite for entry in entries}
    shown = [each for each in tables_of_papers if played & each.suites.keys()] if published else []
    others = {each.title: _published(each) for each in shown}
    tables = _tables(averages) | _tables(entries)
    return Leaderboard(suites=tables, unranked=unranked, published=others)


def _read(records: RunRecords) -> tuple[list[Entry], list[dict[str, str]]]:
    run, episodes = records.identity, records.episodes
    if run.status != "complete":
        done = f"{len(episodes)} of {pluralize(run.n_planned, 'episode')}"
        reason = f"{run.status} with {done} recorded; complete it with --resume"
        return [], [{"run_id": run.run_id, "reason": reason}]
    ranked, left_out = [], []
    for suite, row in RunRows(records).suites.items():
        total = row.n_episodes + row.n_errors
        if exceeds(row.n_errors, total):
            errors = f"{row.n_errors} of {pluralize(total, 'episode')} on {suite} ended in an error"
            reason = f"{errors}, more than {ERROR_BUDGET:g} %; run it again"
            left_out.append({"run_id": run.run_id, "reason": reason})
        else:
            of_suite = {key: episode for key, episode in episodes.items() if key.suite == suite}
            ranked.append(Entry(run=run, suite=suite, row=row, episodes=of_suite))
    if not ranked and not left_out:
        left_out.append({"run_id": run.run_id, "reason": "complete, but no episode is recorded"})
    return ranked, left_out


def _beside_controls(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, where perturbed ones are columns of their controls if these are among them."""
    perturbed = defaultdict[int, dict[str, Entry]](dict)
    alone = []
    for entry in entries:
        places = [
            place
            for place, other in enumerate(entries)
            if other.suite == entry.suite
            and control_of(entry.run, [other.run])
            and entry.episodes.keys() == other.episodes.keys()
        ]
        for place in places:
            perturbed[place][format_perturbations(entry.run.perturb)] = entry
        if not places:
            alone.append(entry)
    return [
        dataclasses.replace(entry, perturbed=dict(sorted(perturbed[place].items())))
        for place, entry in enumerate(entries)
        if entry in alone
    ]


def _averages(
    entries: Sequence[Entry], suites: Mapping[str, str], title: str, *, pooled: bool = False
) -> list[Entry]:
    """An entry for each setting that was played on all of the suites, which have headings.

    Its success rate is the mean of the suites, as papers have it, or pooled; ranks are by all episodes. Of
    several runs of a suite the largest counts, then the latest.
    """
    settings = defaultdict[str, dict[str, Entry]](dict)
    of_suites = [entry for entry in entries if entry.suite in suites]
    for entry in sorted(of_suites, key=lambda entry: (len(entry.episodes), entry.run.run_id)):
        setting = {k: v for k, v in entry.run.to_json().items() if k not in _OF_ONE_RUN}
        setting["overrides"].pop("init_ids", None)  # the episodes themselves are compared
        settings[hash_of(setting)][entry.suite] = entry
    return [
        _average({heading: found[suite] for suite, heading in suites.items()}, title, pooled=pooled)
        for found in settings.values()
        if len(found) == len(suites)
    ]


_ADDED = (
    *("n_episodes", "n_success", "n_invalid_actions", "n_errors", "n_without_truth", "tokens", "policy_s"),
)


def _average(parts: Mapping[str, Entry], title: str, *, pooled: bool) -> Entry:
    rows = [part.row for part in parts.values()]
    sizes = {row.n_episodes for row in rows}
    totals: Any = {name: sum(getattr(row, name) for row in rows) for name in _ADDED}
    episodes = {key: episode for part in parts.values() for key, episode in part.episodes.items()}
    rates = rates_of(list(episodes.values()))
    if not pooled:
        worst = [row.pc_success or 0.0 if row.pc_with_errors is None else row.pc_with_errors for row in rows]
        rates["pc_success"] = statistics.fmean(row.pc_success or 0.0 for row in rows)
        rates["pc_with_errors"] = statistics.fmean(worst) if totals["n_errors"] else None
        rates["pc_success_ci95"] = rates["pc_success_ci95"] if len(sizes) == 1 else None
        of_seeds = [each for row in rows if row.seeds for each in row.seeds.rates.items()]
        rates["seeds"] = Seeds.of((seed, rate / 100) for seed, rate in of_seeds)
    runs = [part.run for part in parts.values()]
    perturbed = {
        name: {heading: part.perturbed[name] for heading, part in parts.items()}
        for name in sorted(set.intersection(*(set(part.perturbed) for part in parts.values())))
    }
    return Entry(
        run=dataclasses.replace(runs[0], run_id=" + ".join(dict.fromkeys(run.run_id for run in runs))),
        suite=title,
        row=Row(**totals, **rates),
        episodes=episodes,
        parts=parts,
        perturbed={name: _average(of, title, pooled=pooled) for name, of in perturbed.items()},
    )


def _tables(entries: Sequence[Entry]) -> dict[str, list[RankedTable]]:
    """Tables by suite, the largest group of comparable runs first."""
    groups = defaultdict[tuple[str, tuple[str, str, str]], list[Entry]](list)
    for entry in entries:
        groups[entry.suite, entry.experiment].append(entry)
    tables: dict[str, list[RankedTable]] = {}
    for suite, experiment in sorted(groups, key=lambda group: (group[0], -len(groups[group]), group)):
        entries = groups[suite, experiment]
        labels = labels_of([entry.run for entry in entries], with_policy=True)
        found = zip(
            entries,
            labels,
            ranks([entry.episodes for entry in entries], paired=entries[0].run.names_states),
            strict=True,
        )
        ranked = [
            dataclasses.replace(entry, label=badged(label, entry.run.assets.name), rank=rank)
            for entry, label, rank in found
        ]
        ranked.sort(key=lambda e: (e.rank.best, -(e.row.pc_success or 0), e.run.policy, e.run.mode))
        seeing = [entry for entry in ranked if "nothing" not in entry.run.policy_inputs]
        inputs = {entry.label: format_inputs(entry.run.policy_inputs) for entry in seeing}
        table = RankedTable(
            title=_title(entries),
            table=Table(columns=_columns(ranked), groups=[ranked]),
            inputs=inputs if len(set(inputs.values())) > 1 else {},
            bars={e.label: _bars(e) for e in ranked if e.perturbed and e.row.pc_success_ci95},
        )
        tables.setdefault(suite, []).append(table)
    return tables


def _bars(entry: Entry) -> list[dict[str, Any]]:
    """Success rates of a control and under its perturbations, in a colour per dimension."""
    dimensions = {name: re.sub(r":\d", "", name) for name in entry.perturbed}
    kinds = list(dict.fromkeys(dimensions.values()))
    control, *others = colours_of(["control", *kinds])
    colours = dict(zip(kinds, others, strict=True))
    rates = {name: rate_of(list(each.episodes.values())) for name, each in entry.perturbed.items()}
    shown = [("control", control, rate_of(list(entry.episodes.values())))]
    shown += [(name, colours[dimensions[name]], rate) for name, rate in rates.items()]
    return [{**vars(rate), "label": name, "colour": colour} for name, colour, rate in shown if rate]


def _published(paper: PublishedConfig) -> Table:
    """What others published, a row per publication."""

    def text(name: str) -> Column:
        return Column(name, lambda score: getattr(score, name) or None, align="left")

    rates = [
        Column(heading, lambda score, place=place: score.rates[place], results.percent)
        for place, heading in enumerate(paper.headings)
    ]
    average = Column(
        "total" if paper.columns else "average", lambda score: score.average, lambda mean: f"{mean:.2f} %"
    )
    told = map(text, ("runner", "trials", "doubts", "source"))
    return Table(columns=[text("policy"), *rates, average, *told], groups=[paper.scores])


def _with_interval(row: Row) -> str:
    """A success rate and its interval, or the spread of its seeds."""
    if row.seeds is not None:
        return results.SEEDS.cell(row)
    return f"{results.SUCCESS.cell(row)} ({results.INTERVAL.cell(row)})"


def _beside(row: Row) -> Markup:
    """The same for the page, the interval in small print."""
    shown = Markup('{}<span class="rate">{}</span>')
    spread = results.INTERVAL if row.seeds is None else results.SEEDS
    return shown.format(results.SUCCESS.cell(row), spread.cell(row))


def _drawn(row: Row, column: Column) -> Markup:
    """A success rate and its interval as a whisker, labelled with a column's text."""
    if row.pc_success_ci95 is None:  # an average of suites of several sizes
        return Markup("{}").format(column.cell(row))
    return whisker(row.pc_success or 0.0, row.pc_success_ci95, column.cell(row))


def _columns(entries: Sequence[Entry]) -> list[Column]:
    """The columns of runs that may be ranked together: those of a paper, then the extra ones."""

    def text(
        heading: str, value: Callable[[Entry], str | None], *, groups: bool = True, **how: Any
    ) -> Column:
        return Column(heading, value, align="left", choices=groups, groups=groups, **how)

    def marked(entry: Entry) -> str:
        """Bold if no other run is significantly better, though some are worse; starred if one is."""
        rate = in_latex(success.cell(entry.row))
        if entry.rank.best > 1:
            return f"{rate}$^*$"
        return f"\\textbf{{{rate}}}" if any(other.rank.best > 1 for other in entries) else rate

    row, success, interval = operator.attrgetter("row"), results.SUCCESS, results.INTERVAL
    has_errors = any(entry.row.n_errors for entry in entries)
    suites = [
        Column(name, lambda entry, name=name: entry.parts[name].row, _with_interval, html=_beside)
        for name in entries[0].parts
    ]
    perturbed = [_perturbed(name) for name in sorted({name for entry in entries for name in entry.perturbed})]
    categories, levels = ([*map(_kind, kinds)] for kinds in kinds_of(entries[0].episodes.values()))
    average = "total" if categories else "average" if suites else "success"
    paper = [
        Column("rank", lambda entry: entry.rank.best),
        text("policy", lambda entry: entry.label, groups=False),
        *(categories or suites),
        Column(average, lambda entry: entry, lambda e: success.cell(e.row), key="success", latex=marked),
        Column(
            interval.heading,
            lambda entry: entry.row if entry.row.pc_success_ci95 else None,
            interval.cell,
            html=lambda row: _drawn(row, interval),
        ),
        results.SEEDS.of(row),
        results.N.of(row),
        *perturbed,
        dataclasses.replace(results.ERRORS, when=is_known, extra=not has_errors).of(row),
        results.WITH_ERRORS.of(row),
    ]
    details = results.details(entry.run.clock for entry in entries)
    others = [*results.MAIN, *details, *results.TEXTS]
    extra = [
        Column("possible ranks", lambda entry: str(entry.rank)),
        *(suites if categories else []),
        *levels,
        *(each.of(row) for each in others if each.name not in {column.name for column in paper}),
        text("mode", lambda entry: entry.run.mode, when=lambda modes: set(modes) != {"actions"}),
        text("weights", lambda entry: entry.run.weights or "not known"),
        text("assets", lambda entry: entry.run.assets.name if entry.run.assets.digest else None),
        text("clock", lambda entry: clock_label(entry.run), when=lambda clocks: set(clocks) != {str(PAUSED)}),
        text("run", lambda entry: entry.run.run_id, groups=False),
    ]
    return [*paper, *(dataclasses.replace(column, extra=True) for column in extra)]


def _perturbed(name: str) -> Column:
    """The success rate of the same episodes under a perturbation, as a bar on the page."""

    def row(entry: Entry) -> Row | None:
        return entry.perturbed[name].row if name in entry.perturbed else None

    success = results.SUCCESS
    return Column(name, row, success.cell, html=lambda row: _drawn(row, success), legend=_PERTURBED)


def _kind(name: str) -> Column:
    """The success rate of episodes of a kind."""

    def row(entry: Entry) -> Row | None:
        categories, levels = kinds_of(entry.episodes.values())
        rate = rate_of({**categories, **levels}[name])
        if rate is None:
            return None
        shown = {"pc_success": rate.percent, "pc_success_ci95": rate.interval}
        return Row(n_episodes=rate.of, n_success=rate.hits, **shown)

    return Column(name, row, _with_interval, html=_beside)


def _title(entries: Sequence[Entry]) -> str:
    """Protocol, assets, episodes and, unless all are paused, clocks; equal assets may have several names.

    The origin of fed-back texts, and overrides that all runs have, stand beside the protocol.
    """
    (protocol, assets, digest), keys = entries[0].experiment, entries[0].episodes
    names = sorted({entry.run.assets.name for entry in entries})
    files = f", assets {badged(', '.join(names), *names)} ({assets[:8]})" if assets else ""
    tasks = {(key.suite, key.task_id) for key in keys}
    states, seeds = (sorted({getattr(key, part) for key in keys}) for part in ("init_id", "seed"))
    between = str(states[0]) if len(states) == 1 else f"{states[0]}–{states[-1]}"
    identities = [entry.run for entry in entries]
    known = f"{len(states)} ({between})" if identities[0].names_states else "unknown"
    named = " or ".join(sorted({run.protocol_name for run in identities if run.protocol_name}))
    common = [
        each
        for each in identities[0].protocol_changes
        if all(each in run.protocol_changes for run in identities)
    ]
    motion = {run.overrides["motion"] for run in identities} - {None, str(Static())}
    feedback, perturb = identities[0].feedback, identities[0].perturb
    told = [
        *([f"perturbed by {format_perturbations(perturb)}"] if perturb else []),
        *([f"feedback {feedback}"] if feedback else []),
        *common,
        *(f"motion {each}" for each in motion),
    ]
    beside = "".join(f", {in_markdown(each)}" for each in told)
    beside = f", imported{beside}" if identities[0].imported else beside
    runs = {clock_label(entry.run): entry.run for entry in entries}
    clocks = [
        f"clock `{in_markdown_code(str(run.clock))}` ({format_clock_of(run)})"
        for _, run in sorted(runs.items())
    ]
    return (
        f"Protocol `{in_markdown_code(f'{named} {protocol}'.strip())}`{beside}{files}, "
        f"episodes: {len(keys)}, tasks: {len(tasks)}, initial states: {known}, "
        f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))} (`{digest}`)"
        f"{'' if set(runs) == {str(PAUSED)} else ', ' + ' or '.join(clocks)}"
    )


def write_leaderboard(board: Leaderboard, folder: Path) -> Path:
    """Write the page and the other formats to a folder; returns the page.

    Raises:
        UsageError: The folder cannot be written.
    """
    texts = {
        "leaderboard.md": leaderboard_markdown(board),
        "leaderboard.csv": _csv(board),
        "leaderboard.tex": leaderboard_latex(board),
        "leaderboard.json": json.dumps(_json(board), indent=1, ensure_ascii=False) + "\n",
    }
    unranked = [[each["run_id"], each["reason"]] for each in board.unranked]
    content = {
        "title": "Leaderboard",
        "board": board,
        "error_budget": ERROR_BUDGET,
        "unranked": Table.of_cells(["run", "reason"], unranked, left=2),
        "formats": list(texts),
    }
    return write_page(folder, "leaderboard.html.j2", content, **texts)


def leaderboard_markdown(board: Leaderboard) -> str:
    """The leaderboard as Markdown."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"in_markdown": in_markdown, "in_markdown_code": in_markdown_code}
    environment.filters |= {"table": to_markdown}
    template = environment.from_string(page_file("leaderboard.md.j2").decode())
    columns = [column for each in board.tables for column in each.table.shown]
    return template.render(
        board=board, error_budget=ERROR_BUDGET, legend=Table(columns=columns, groups=()).legend()
    )


def _csv(board: Leaderboard) -> str:
    """One line per run and suite, in the columns of all tables and with the table's number."""
    records = []
    for suite, tables in board.suites.items():
        for number, table in enumerate(tables, start=1):
            for entry, cells in zip(table.table.rows, table.table.records(), strict=True):
                del cells["possible ranks"]
                what = {"suite": suite, "table": number, "protocol": entry.protocol, "rank": entry.rank.best}
                ends = {"best rank": entry.rank.best, "worst rank": entry.rank.worst}
                records.append(what | ends | cells)
    return to_csv(records)


def _json(board: Leaderboard) -> dict[str, Any]:
    return {
        "error_budget": ERROR_BUDGET,
        "suites": {
            suite: [
                {
                    "title": table.title,
                    "protocol": table.table.rows[0].protocol,
                    "rows": [
                        {
                            "rank": entry.rank.best,
                            "possible_ranks": entry.rank,
                            "run": entry.run.to_json(),
                            "results": fields_of(entry.row),
                            "perturbed": {
                                name: {"run": each.run.run_id, "results": fields_of(each.row)}
                                for name, each in entry.perturbed.items()
                            },
                            "pc_success_of_suites": {
                                part.suite: part.row.pc_success for part in entry.parts.values()
                            },
                        }
                        for entry in table.table.rows
                    ],
                }
                for table in tables
            ]
            for suite, tables in board.suites.items()
        },
        "not_ranked": board.unranked,
    }


def leaderboard_latex(board: Leaderboard) -> str:
    """The leaderboard as tables of package booktabs; those of suites only if no table of several has them."""
    parts = [
        r"% \usepackage{booktabs}",
        "% Intervals: 95 %, Wilson. Bold: no other run solves significantly more of the same episodes;",
        "% starred: another one does (McNemar's exact test at 5 %). Runs that share a rank are tied.",
    ]
    for suite, tables in board.suites.items():
        for each in tables if suite not in board.summarized else ():
            title = " ".join(f"{suite}: {each.title}".split())
            runs = ", ".join(entry.run.run_id for entry in each.table.rows)
            parts += [f"% {visible_text(title)}", f"% runs: {visible_text(runs)}", to_latex(each.table)]
    return "\n".join(parts)
