"""A column that is added in one place is in the terminal, on the page, in Markdown and in CSV."""

import io
import json

import pytest
from rich.console import Console

from configs.console import TextConsole
from configs.errors import check
from eval.bench import table as bench
from eval.metrics.sweep_rows import SweepRecord
from eval.records.run_folders import SweepFolder
from eval.report import comparison_verdict, result_tables, sweep_table
from eval.report.comparison_verdict import judge_all, show
from eval.report.leaderboard import leaderboard_markdown, read_leaderboard, write_leaderboard
from eval.report.pages.reported_runs import read_runs
from eval.report.pages.run_report import run_tables
from eval.report.sweep_plots import write_sweep_page
from eval.report.table import Column, Table, to_csv, to_markdown, to_terminal
from tests.commands import ROOT
from tests.eval.bench.conftest import *  # noqa: F403 - fixtures
from tests.eval.factory import RunBuilder, compare, run_rows, write_report

SEED = Column("seed", lambda _: 4711)


@pytest.fixture(autouse=True)
def _added():
    """The column, in one place for each kind of table."""
    places = result_tables.MAIN, sweep_table.RESULTS, bench.TIMES, comparison_verdict.RATES
    for columns in places:
        columns.insert(1, SEED)
    yield
    for columns in places:
        columns.remove(SEED)


def printed(*shown, width=200):
    console = TextConsole(file=io.StringIO(), width=width)
    for each in shown:
        console.print(each)
    return console.file.getvalue()


def runs_of(path):
    return [RunBuilder.at(path / mode, mode=mode).add_all("sst") for mode in ("isolated", "unified")]


def test_of_a_run(tmp_path):
    runs = runs_of(tmp_path)
    records = [run_rows(run.folder) for run in runs]
    reported, _ = read_runs([each.records for each in records])
    summary, *_ = run_tables(reported, [each.overall for each in records])
    page = write_report([run.path for run in runs], tmp_path / "page").read_text()
    for text in (printed(to_terminal(summary)), page, to_markdown(summary), to_csv(summary.records())):
        assert text.count("4711") == 2


def test_of_a_leaderboard(tmp_path):
    runs_of(tmp_path)
    board = read_leaderboard([tmp_path])
    page = write_leaderboard(board, tmp_path / "page")
    chosen = board.showing("policy,seed")
    rows = (page.parent / "leaderboard.csv").read_text()
    for text in (leaderboard_markdown(chosen), page.read_text(), rows):
        assert text.count("4711") == 2


def test_of_a_sweep(tmp_path):
    written = json.loads((ROOT / "benchmarks/results/sweep_spatial_latency.json").read_text())
    record = check(SweepRecord, written, source="the test")
    page = write_sweep_page(SweepFolder(tmp_path), record, tmp_path / "page")
    table = Table(columns=sweep_table.columns_of(record), groups=[record.cells])
    shown = printed(sweep_table.sweep_table(record, width=80)), to_markdown(table)
    for text in (*shown, page.read_text(), (page.parent / "cells.csv").read_text()):
        assert text.count("4711") == len(record.cells)


def test_of_a_benchmark(made_up):
    rows, console = made_up(), Console(file=io.StringIO(), width=120)
    bench.print_rows(rows, console)
    for text in (console.file.getvalue(), to_markdown(bench.rows_table(rows, bench.TIMES))):
        assert text.count("4711") == len(rows)


def test_of_a_comparison(tmp_path):
    comparison = compare(*(run.folder for run in runs_of(tmp_path)))
    console = TextConsole(file=io.StringIO(), width=80)
    show(comparison, judge_all(comparison), console)
    assert console.file.getvalue().count("4711") == 1
