"""The end of an evaluation in a terminal: a table, a sentence, and where the rest is."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.text import Text

from configs.assets import badge, badged
from configs.console import TextConsole, visible_text
from configs.paths import shown
from contracts.episode import EpisodeResult, Outcome, graded_only
from contracts.errors import UsageError, pluralize
from eval.metrics.rows import RunRows
from eval.records.reader import RunRecords
from eval.records.run_folders import Run
from eval.records.schema import RunFolder
from eval.report.comparison_verdict import show
from eval.report.conclusion import Conclusion, conclude_runs
from eval.report.labels import labels_of
from eval.report.pages.reported_runs import merit, read_runs
from eval.report.pages.run_report import REPORT, run_tables, write_report
from eval.report.perturbations import perturbations_table, perturbed_rows
from eval.report.result_tables import ERRORS, ERRORS_COUNTED, MAIN, TEXTS_RIGHT, labelled
from eval.report.table import ELLIPSIS, Column, Table, to_terminal

_MOST_ROWS = 4  # suites of one run, or folders, that are listed
_LONGEST_ERROR = 160  # characters


def show_last_screen(
    console: TextConsole,
    runs: Sequence[Run],
    results: Sequence[RunRows],
    *,
    report: bool = False,
    verbose: bool = False,
) -> None:
    """Print a row per run, the conclusion, what went wrong, and the paths of report, video and records.

    With `report` the page is written first, into the first run's folder. With `verbose`, details come first.
    """
    records = with_controls(results)
    known = labels_of([each.identity for each in records])
    labels = known[len(records) - len(results) :]
    episodes = [list(each.records.episodes.values()) for each in results]
    conclusion = conclude_runs(known, records)
    if verbose:
        show_details(console, results, conclusion)
    places, problems = _places(runs, results, labels, records, conclusion if report else None)
    remarks = [*conclusion.remarks, *problems]
    table = results_table(results, labels, conclusion)
    parts = [Text(visible_text(conclusion.sentence), style="bold"), to_terminal(table.fitting(console.width))]
    console.print()
    for part in parts if len(records) == 1 else reversed(parts):
        console.print(part)
    has_page = bool(places) and places[0][0] == "report"
    for remark in [*_problems(labels, episodes, has_page=has_page), *remarks]:
        console.print(Text(visible_text(remark), style="yellow"))
    console.print()
    for name, place in places:
        console.print(Text.assemble((f"{name:<8} ", "dim"), visible_text(place)), soft_wrap=True)


def with_controls(results: Sequence[RunRows]) -> list[RunRecords]:
    """The records of runs, after those of the controls that they name."""
    named = [each.records.folder.read_manifest().get("config", {}).get("control") for each in results]
    controls = dict.fromkeys(path for path in named if path is not None)
    return [*(RunRecords(RunFolder(Path(path))) for path in controls), *(each.records for each in results)]


def results_table(results: Sequence[RunRows], labels: Sequence[str], conclusion: Conclusion) -> Table:
    """A row per run; of the only one per kind of task, with the pooled total, or per suite.

    A row per perturbation, with its difference from the control, if some are perturbed.
    """
    suites, assets = list(results[0].suites), [each.records.identity.assets.name for each in results]
    policies = dict.fromkeys(each.records.identity.policy for each in results)
    title = badged(f"{', '.join(policies)} on {', '.join(suites)}", *assets)
    if perturbed := perturbed_rows(conclusion.judged):
        return perturbations_table(perturbed, title)
    groups = [list(zip(labels, (each.overall for each in results), strict=True))]
    if len(results) == 1 and results[0].kinds:
        groups = [*(list(kinds.items()) for kinds in results[0].kinds), [("all tasks", results[0].overall)]]
    elif len(results) == 1 and 1 < len(suites) <= _MOST_ROWS:
        groups = [[*results[0].suites.items(), ("all suites", results[0].overall)]]
    name = Column("run", str, align="left")
    columns = [ERRORS_COUNTED if each is ERRORS else each for each in MAIN]
    table = labelled(name, [*columns, *TEXTS_RIGHT], *groups, title=title if len(results) > 1 else "")
    return table if table.title else table.marked(badge(*assets))


def _problems(
    labels: Sequence[str], episodes: Sequence[Sequence[EpisodeResult]], *, has_page: bool
) -> Iterator[str]:
    """How many errors there were and the first message, and how many invalid actions, in a line each."""
    ended = [(label, each) for label, of_run in zip(labels, episodes, strict=True) for each in of_run]
    errors = [(label, each) for label, each in ended if each.outcome is Outcome.ERROR]
    if errors:
        label, first = errors[0]
        where = f"{label}, {first.key}" if len(labels) > 1 else str(first.key)
        message = " ".join(str(first.error).split())
        cut = message if len(message) <= _LONGEST_ERROR else f"{message[:_LONGEST_ERROR]}{ELLIPSIS}"
        yield f"{pluralize(len(errors), 'error')}, the first in {where}: {cut}"
        traced = "The report has the tracebacks" if has_page else "`oxygen-eval report` shows the tracebacks"
        yield f"{traced}; the same command with --resume retries errors."
    if invalid := sum(each.outcome is Outcome.INVALID_ACTION for _, each in ended):
        of = pluralize(len(ended), "episode")
        yield f"{invalid} of {of} ended with invalid actions, which are failures and not retried."


def _places(
    runs: Sequence[Run],
    results: Sequence[RunRows],
    labels: Sequence[str],
    records: Sequence[RunRecords],
    conclusion: Conclusion | None,
) -> tuple[list[tuple[str, str]], list[str]]:
    """Names and paths of the report, the best video and the records; and problems.

    The report of the records is written here if a conclusion is given.
    """
    places, problems, folders = [], list[str](), [run.folder.path for run in runs]
    if conclusion is not None:
        try:
            page = write_report(records, folders[0] / REPORT, conclusion)
            places.append(("report", shown(page)))
        except UsageError as error:  # the records are complete without it
            problems.append(f"No report: {error}")
    best_of = next((n for n, run in enumerate(runs) if run.config.mode == "unified"), -1)
    if (best := best_video(results[best_of].records)) is not None:
        path, why = best
        places += [("video", shown(path)), ("", f"{labels[best_of]}, {why}" if len(runs) > 1 else why)]
    listed = folders if len(folders) <= _MOST_ROWS else [folders[0].parent]
    names = ["records", *[""] * (len(listed) - 1)]
    return [*places, *zip(names, map(shown, listed), strict=True)], problems


def show_details(console: TextConsole, results: Sequence[RunRows], conclusion: Conclusion) -> None:
    """Print the tables of the report, and each comparison with the first run in full."""
    reported, _ = read_runs([each.records for each in results])
    summary, texts, tasks = run_tables(reported, [each.overall for each in results])
    main = {column.name for column in MAIN}
    details = summary.showing([column.name for column in summary.columns if column.name not in main])
    for table in (tasks, details, texts):
        if len(table.shown) > 1:
            console.print(to_terminal(table.fitting(console.width)))
            console.print(Text(table.legend(narrow=True), style="dim"))
    for comparison, judgements in conclusion.judged.values():
        console.print()
        show(comparison, judgements, console)


def best_video(run: RunRecords) -> tuple[Path, str] | None:
    """The video of the best graded episode, and what that did; None without one."""
    shown = [each for each in graded_only(list(run.episodes.values())) if each.video is not None]
    if not shown:
        return None
    best = max(shown, key=merit)
    outcome, requests = best.outcome.value.replace("_", " "), best.requests
    texts = f", {pluralize(requests.finished, 'text')}" if requests.requested else ""
    return run.folder.path / str(best.video), f"{outcome} in {best.steps} steps{texts}: {best.language}"
