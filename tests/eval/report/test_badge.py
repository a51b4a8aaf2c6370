"""Results on stand-ins carry a mark wherever they are shown, and others do not."""

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from configs.assets import STANDINS, badge
from configs.errors import check
from contracts.clock import PAUSED
from eval.metrics.sweep_rows import SweepRecord
from eval.records.run_folders import SweepFolder
from eval.records.schema import RunFolder
from eval.report.comparison_verdict import judge_all, show
from eval.report.export import FORMATS
from eval.report.leaderboard import read_leaderboard, write_leaderboard
from eval.report.sweep_plots import write_sweep_page
from eval.report.sweep_table import sweep_table
from eval.rollout.recorder import EpisodeCaptions
from tests.commands import ROOT
from tests.eval.conftest import begin, evaluate
from tests.eval.doubles import FakeAssets
from tests.eval.factory import RunBuilder, compare, key, write_report

MARK = badge(STANDINS)


def head(page: Path) -> list[str]:
    """The titles of a page."""
    (title,), (heading,) = (re.findall(f"<{tag}>([^<]*)<", page.read_text()) for tag in ("title", "h1"))
    return [title, heading]


def leaderboard(runs: list[RunFolder], folder: Path) -> list[str]:
    write_leaderboard(read_leaderboard([run.path for run in runs]), folder)
    texts = {file.suffix: file.read_text() for file in folder.glob("*.*")}
    lines = [*texts[".md"].splitlines(), *texts[".csv"].splitlines()]
    rows = [line for line in lines if line.startswith(("| 1 |", "libero_object,"))]
    assert len(rows) == 4
    return [*rows, texts[".tex"].partition("tabular")[2], texts[".json"], texts[".html"]]


def report(runs: list[RunFolder], folder: Path) -> list[str]:
    page = write_report([run.path for run in runs], folder)
    assert not any(MARK in heading for heading in re.findall("<th .*?</th>", page.read_text()))
    return head(page)


def comparison(runs: list[RunFolder], folder: Path) -> list[str]:
    console, compared = Console(width=100), compare(*runs)
    with console.capture() as printed:
        show(compared, judge_all(compared), console)
    return re.split("only A|by McNemar", printed.get())


def exports(runs: list[RunFolder], folder: Path) -> list[str]:
    return [export(runs[0]) for export in FORMATS.values()]


def captions(runs: list[RunFolder], folder: Path) -> list[str]:
    how = {
        "instructions": {0: "lift it"},
        "policy": "tiny",
        "mode": "actions",
        "has_texts": False,
        "clock": PAUSED,
    }
    assets = runs[0].read_manifest()["assets"]["name"]
    return [EpisodeCaptions(key(), assets=assets, **how, limit_s=14.0, control_hz=20.0).at(0).episode]


def played(path: Path, assets: str, **manifest) -> RunFolder:
    about = {"name": assets, "digest": "d1ge57000000"}
    return RunBuilder.at(path, assets=about, **manifest).add_all("ss").folder


@pytest.mark.parametrize("name", [STANDINS, "hf-libero"])
@pytest.mark.parametrize("shown", [leaderboard, report, comparison, exports, captions])
def test_results_on_stand_ins_are_marked_in_tables_titles_videos_and_exports(shown, name, tmp_path):
    runs = [played(tmp_path / mode, name, mode=mode) for mode in ("isolated", "unified")]
    for text in shown(runs, tmp_path / "page"):
        plain = text.replace("\\", "")  # Markdown escapes brackets
        assert (MARK in plain) == (name == STANDINS), text


def test_a_report_of_runs_on_several_assets_marks_those_on_stand_ins(tmp_path):
    runs = [played(tmp_path / name, name) for name in (STANDINS, "hf-libero")]
    tables = write_report([run.path for run in runs], tmp_path / "page").read_text().split("<table")[1:]
    assert tables
    assert all(f"assets standins {MARK}<" in table for table in tables)


@pytest.mark.parametrize("name", [STANDINS, "hf-libero"])
def test_so_are_sweeps(name, tmp_path):
    written = json.loads((ROOT / "benchmarks/results/sweep_modes.json").read_text())
    written["provenance"]["assets"]["name"] = name
    record, console = check(SweepRecord, written, source="the test"), Console(width=100)
    with console.capture() as printed:
        console.print(sweep_table(record, width=100))
    for text in (printed.get(), *head(write_sweep_page(SweepFolder(tmp_path), record))):
        assert (MARK in text) == (name == STANDINS)


@pytest.mark.parametrize("shown", [begin, lambda path: begin(path)[:1]], ids=["two modes", "one"])
def test_so_is_the_terminal(shown, tmp_path, stage, monkeypatch, capsys):
    monkeypatch.setattr("sim_envs.libero.suite.find_assets", lambda _: FakeAssets(name=STANDINS))
    evaluate(*shown(tmp_path))
    heading, _, rest = capsys.readouterr().out.partition("\n")
    assert f"assets standins {MARK}" in heading
    assert MARK in rest.partition("──")[0]
