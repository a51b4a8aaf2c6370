"""The page of results has what the records say, and no figure of its own."""

import json
import re
from pathlib import Path

import pytest

from configs.errors import UsageError
from eval import results
from eval.records.sweep_folders import SweepFolder
from eval.report import results_page
from eval.report.results_page import RESULTS, SUMMARY, write_page
from eval.report.sweep_plots import draw_sweep
from eval.report.sweep_series import latency_lines
from eval.report.sweep_table import text_columns
from tests.eval.report.test_frontier import ACTIONS, row

ROOT = Path(__file__).resolve().parents[3]
SWEEPS = (
    "frontier",
    "moving",
    "modes",
    "speeds",
    "spatial",
    "spatial_latency",
    "latency",
    "overlap",
    "motions",
    "motions_trained",
)
RECORDS = ROOT / "benchmarks" / "results"


def drawn_before(record, folder, *, stem):
    """The figures that the documents have."""
    figures = [ROOT / "docs" / f"{stem}_{name}.png" for name in ("latency", "cells", "frontier")]
    return [figure for figure in figures if figure.exists()]


def whole_row(each):
    return {
        "n_episodes": 8,
        "n_errors": 0,
        "n_success": 6,
        "pc_success": 75.0,
        "pc_success_ci95": [41.0, 93.0],
        "time_to_success_s": {"mean": 4.5, "median": 4.0, "n": 6},
        "time_to_success_ci95": [4.0, 5.0],
        "charged_ms": {"actions": 52.0, "busy": 96.0},
        "pc_held": 3.0,
        "staleness_ms": None,
        **each,
        "options": {
            "motion": "none",
            "tokens_per_frame": 1,
            "replan_steps": 5,
            "while_waiting": "continue",
            **each["options"],
        },
    }


@pytest.fixture
def record():
    rows = [
        whole_row(each | {"options": each["options"] | {"clock": "profile:jetson-thor"}})
        for each in ({**ACTIONS, "tokens_per_simulated_s": 0.0}, row(4), row(1, time="inferior"))
    ]
    frontier = {
        "options": {"clock": "profile:jetson-thor", "mode": "unified"},
        "tokens_per_s": 10.0,
        "cell": rows[1]["options"],
        "identical": False,
        "rates": 2,
        "next": {"tokens_per_s": 40.0, "success": "non-inferior", "time": "inferior"},
    }
    return {
        "sweep": "20260101-000000-sweep",
        "status": "complete",
        "config": {
            "margin": 5.0,
            "time_margin": 10.0,
            "suites": ["libero_object"],
            "init_ids": [3, 4],
            "chosen_on": "another",
        },
        "varied": ["mode", "text_every"],
        "cells": rows,
        "frontier": [frontier],
        "provenance": {
            "policy": "tiny",
            "assets": {"name": "standins"},
            "command": "python -m eval.sweep --best-of runs/another --output-dir /tmp/x --resume",
        },
    }


def test_the_page_has_the_figures_the_table_and_the_command(record, tmp_path):
    page, *figures = write_page([record], tmp_path / "docs" / "results.md")
    text = page.read_text()
    assert "| jetson-thor | Jetson AGX Thor |" in text
    assert "- jetson-thor, unified: 10.0 tokens/s (text every 4 queries); at the next, 40.0 tokens/s," in text
    assert "| unified | 4 | 6/8 | 4.5 | ≥ | ≥ | 52 | 96 | 3 % | 10 |" in text
    assert "| unified | 1 | 6/8 | 4.5 | ≥ | ≪ | 52 | 96 | 3 % | 40 |" in text
    assert "\npython -m eval.sweep --best-of runs/another\n" in text
    assert sorted(re.findall(r"!\[[^]]*]\(([^)]*)\)", text)) == sorted(figure.name for figure in figures)
    assert all(figure.stat().st_size > 10_000 for figure in figures)
    assert len(figures) == 2


def test_signs_tell_a_loss_from_an_open_question_and_equality_from_both(record, tmp_path):
    row = record["cells"][1]
    for success, time, shown in (
        ({"ci95": [-20.0, -2.0]}, {"ci95": [1.02, 1.3]}, "| < | < |"),
        ({"ci95": [-20.0, 2.0]}, {"ci95": [0.98, 1.3]}, "| ? | ? |"),
        ({"ci95": [-7.0, 7.0], "identical": True}, {"ci95": [1.0, 1.0]}, "| = | = |"),
    ):
        row["success"] = {"verdict": "inconclusive", **success}
        row["time"] = {"verdict": "inconclusive", **time}
        page, *_ = write_page([record], tmp_path / "results.md")
        assert shown in page.read_text()


def test_a_page_that_exists_keeps_its_own_text(record, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Mine\n\n{RESULTS.written('stale')}\n\nThe rest.\n")
    write_page([record], page)
    assert page.read_text().startswith(f"# Mine\n\n{RESULTS.begin}\n\nIn the tables: ")
    assert page.read_text().endswith(f"{RESULTS.end}\n\nThe rest.\n")
    assert "stale" not in page.read_text()


def test_a_summary_has_the_frontier_or_a_row_for_each_device_and_mode(record, tmp_path):
    page = tmp_path / "README.md"
    page.write_text(f"{SUMMARY.begin}\n{SUMMARY.end}\n")
    assert write_page([record, {**record, "frontier": []}], page) == [page]
    assert "- jetson-thor, unified: 10.0 tokens/s (text every 4 queries); at the next" in page.read_text()
    assert "| A | unified, text every 4 queries | 6/8 ≥, 4.5 s ≥ | 10 |" in page.read_text()
    assert "| A | actions | 6/8, 4.5 s | none |" in page.read_text()
    assert "5 points of success, 10 % of time to success" in page.read_text()


def test_the_documents_have_what_the_records_say(tmp_path, monkeypatch):
    monkeypatch.setattr(results_page, "draw_sweep", drawn_before)
    records = [json.loads((RECORDS / f"sweep_{name}.json").read_text()) for name in SWEEPS]
    for name, shown in {"README.md": records[:2], "docs/results.md": records}.items():
        page = tmp_path / Path(name).name
        page.write_text(before := (ROOT / name).read_text(encoding="utf-8"))
        write_page(shown, page)
        assert page.read_text() == before


def test_a_heading_says_what_varies():
    records = {name: SweepFolder.at(RECORDS / f"sweep_{name}.json").read_finished() for name in SWEEPS}
    headings = {name: results_page._heading(record) for name, record in records.items()}
    assert headings["spatial"] == "Modes, libero_spatial"
    assert headings["moving"].startswith(
        "Modes by motion (oscillating at 3 cm/s, drifting at 1.5 cm/s), libero"
    )
    assert headings["spatial_latency"] == "Success over latency and overlap, libero_spatial"
    assert headings["frontier"] == "Text rate without a measurable loss, libero_object"


def test_a_page_without_a_block_is_left_alone(record, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Mine\n")
    with pytest.raises(UsageError, match="results: begin"):
        write_page([record], page)
    assert [each.name for each in tmp_path.iterdir()] == ["page.md"]


def test_a_kept_record_is_as_good_as_the_folder(record, tmp_path, capsys):
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(record))
    results.main(file)
    assert "jetson-thor, unified: 10.0 tokens/s" in " ".join(capsys.readouterr().out.split())


def test_an_unfinished_sweep_is_no_result(record, tmp_path):
    file = tmp_path / "kept.json"
    file.write_text(json.dumps({**record, "status": "running"}))
    with pytest.raises(UsageError, match="is not complete"):
        SweepFolder.at(file).read_finished()


def test_columns_of_texts_are_shown_if_a_cell_has_texts_even_if_all_are_wrong(record):
    assert text_columns(record) == {}
    silent, *talking = record["cells"]
    for each in talking:
        each |= {
            "staleness_ms": 400.0,
            "texts_per_simulated_s": 2.0,
            "pc_right_on_delivery": {"narration": 0.0},
        }
    assert text_columns(record) == {
        "texts/s": [None, 2.0, 2.0],
        "late": [None, 0.4, 0.4],
        "narration": [None, 0.0, 0.0],
    }
    assert silent["staleness_ms"] is None


def test_a_line_over_latency_has_one_label_and_colour_in_every_motion(record, tmp_path):
    actions = record["cells"][0]
    record |= {"varied": ["clock", "motion", "while_waiting"], "frontier": []}
    record["cells"] = [
        {
            **actions,
            "charged_ms": {"actions": latency, "busy": latency},
            "options": {**actions["options"], "motion": motion, "while_waiting": waiting},
        }
        for motion, waits in (("none", ("continue", "hold")), ("shuttle:3", ("hold",)))
        for waiting in waits
        for latency in (0.0, 100.0, 200.0)
    ]
    lines = latency_lines(record)
    assert {motion: [line.label for line in each] for motion, each in lines.items()} == {
        "static": ["continue", "hold"],
        "oscillating at 3 cm/s": ["hold"],
    }
    (_, hold), (again,) = lines.values()
    assert (hold.colour, hold.place) == (again.colour, again.place)
    assert [path.name for path in draw_sweep(record, tmp_path)] == ["sweep_latency.png"]
