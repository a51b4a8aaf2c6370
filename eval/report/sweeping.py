"""Runs or resumes a sweep, writes its results and prints them."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.console import TextConsole
from configs.schema import PlayConfig
from eval.metrics.success import Results
from eval.records.run_folders import new_run
from eval.records.sweep_folders import SweepFolder
from eval.report.pages.run_report import REPORT
from eval.report.sweep import summarize_sweep
from eval.report.sweep_page import write_sweep_page
from eval.report.sweep_plots import draw_sweep
from eval.report.sweep_table import (
    JUDGED_NOTE,
    MEASURES_NOTE,
    NOTE,
    SweepConsole,
    has_measures,
    is_judged,
    sweep_table,
)
from eval.rollout.evaluation import exit_code, run_evaluation
from eval.rollout.executors.executor import SERIAL, Executor
from eval.rollout.grid import cells_of
from eval.rollout.monitor import MonitorFactory


def run_sweep(
    folder: SweepFolder,
    *,
    monitor: MonitorFactory = SweepConsole,
    executor: Executor = SERIAL,
    max_errors: int = PlayConfig().max_errors,
) -> int:
    """Run the remaining episodes of a sweep, write its results and print them.

    Args:
        folder: The sweep's folder.
        monitor: Shows progress.
        executor: Runs the episodes.
        max_errors: Stop after this many consecutive errors.

    Returns:
        The exit code of the evaluation.

    Raises:
        UsageError: As `run_evaluation`; a new sweep that is refused before its first episode leaves nothing.
        KeyboardInterrupt: All records are on disk.
    """
    config = folder.config()
    with folder.locked():
        runs = folder.runs() or tuple(new_run(folder.path, cell) for cell in cells_of(config))
        try:
            results = run_evaluation(*runs, monitor=monitor, max_errors=max_errors, executor=executor)
        except BaseException:
            folder.drop_unless_begun()
            raise
        show_sweep(folder, conclude(folder, results))
    return exit_code(results)


def conclude(folder: SweepFolder, results: Sequence[Results]) -> dict[str, Any]:
    """Write `sweep.json`, the figures and the page of a sweep whose episodes have all been played.

    Args:
        folder: The sweep.
        results: Results of its runs, in order.

    Returns:
        The record.
    """
    failed = any(each["overall"]["n_errors"] for each in results)
    config = folder.config()
    summary = summarize_sweep(config, folder.runs(), results)
    folder.write(config, status="errors" if failed else "complete", **summary)
    record = folder.read()
    draw_sweep(record, folder.path)
    write_sweep_page(folder, record)
    return record


def show_sweep(folder: SweepFolder, record: Mapping[str, Any]) -> None:
    """Print the table of a finished sweep and the paths of its files."""
    rich = TextConsole()
    rich.print(sweep_table(record))
    notes = {NOTE: True, MEASURES_NOTE: has_measures(record), JUDGED_NOTE: is_judged(record)}
    for note in (note for note, shown in notes.items() if shown):
        rich.print(note, style="dim", markup=False)
    if record["status"] == "errors":
        rich.print("The same command with --resume retries the episodes that were errors.")
    page = folder.path / REPORT / "index.html"
    for path in (folder.record_path, *sorted(folder.path.glob("*.png")), *([page] if page.is_file() else [])):
        rich.print(str(path), soft_wrap=True, markup=False)
