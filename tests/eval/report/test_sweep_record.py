"""Tables and figures of a sweep's record, and the pages that show its numbers."""

import json

import pytest

from configs.errors import check
from contracts.errors import UsageError
from eval.metrics.results_file import fields_of
from eval.metrics.sweep_rows import CELL_FIELDS, Cell, SweepRecord, read_sweep
from eval.records.run_folders import SweepFolder
from eval.report.sweep import show_sweep
from eval.report.sweep_plots import draw_surface, draw_sweep, over_interval, over_latency
from eval.report.sweep_table import columns_of
from eval.report.table import Table
from scripts import results
from tests.commands import ROOT

SCHEDULE = {"text_every": 1, "tokens_per_frame": 5, "replan_steps": 1}
OPTIONS = {**SCHEDULE, "motion": "none", "while_waiting": "continue", "overlap": "skip"}
CELLS = (("actions", 2, 5), ("actions", 2, 10), ("actions", 2, 15), ("unified", 2, 5))


def row(mode, a, b):
    judged = mode != "actions"
    return {
        "run": f"{mode}-{a}-{b}",
        "options": {**OPTIONS, "clock": f"fixed:{50 * a},{50 * b}", "mode": mode},
        "n_episodes": 8,
        "n_success": 6,
        "outcomes": "11011011" if judged else "01111101",
        "pc_success": 75.0,
        "pc_success_ci95": [41.0, 93.0],
        "time_to_success_s": {"mean": 4.5, "median": 4.0, "n": 6},
        "time_to_success_ci95": [4.0, 5.0],
        "restricted_mean_s": 6.9,
        "restricted_mean_ci95": [5.0, 9.0],
        "charged_ms": {"actions": 50.0 * a, "busy": 50.0 * b},
        "control_steps": {
            name: dict.fromkeys(("median", "least", "most"), steps) for name, steps in (("a", a), ("b", b))
        },
        "pc_idle": 3.0,
        "tokens_per_simulated_s": 40.0 if judged else 0.0,
        "success": {"verdict": "non-inferior"} if judged else None,
        "time": {"verdict": "inferior"} if judged else None,
    }


@pytest.fixture
def record():
    return {
        "sweep": "20260101-000000-sweep",
        "status": "complete",
        "config": {"margin": 5.0, "time_margin": 10.0, "suites": ["libero_object"], "init_ids": [3, 4]},
        "varied": ["clock", "mode"],
        "cells": [row(*each) for each in CELLS],
        "provenance": {
            "policy": "tiny",
            "assets": {"name": "standins", "digest": "05bb9ab96238"},
            "command": "oxygen-eval sweep --output-dir /tmp/x --resume",
        },
    }


def read(record):
    """The record as it is read from its file."""
    return check(SweepRecord, record, source="the test")


def show(file):
    """Print the table of a finished sweep."""
    folder = SweepFolder.at(file)
    show_sweep(folder, read_sweep(folder))


def cells_of(written):
    """The last cell by heading in a terminal."""
    record = read(written)
    table = Table(columns=columns_of(record), groups=[record.cells])
    heads = [table.layout(each)[0].replace("\n", " ") for each in table.shown]
    return dict(zip(heads, (each.cell(record.cells[-1]) for each in table.shown), strict=True))


def test_signs_tell_a_loss_from_an_open_question_and_equality_from_both(record):
    assert list(cells_of(record).values()) == [
        *("fixed:100,250", "unified", "6/8", "4.5", "6.9", "≥", "≪", "100", "250", "2", "5", "3 %", "40"),
    ]
    judged = record["cells"][-1]
    for success, time, shown in (
        ({"ci95": [-20.0, -2.0]}, {"ci95": [1.02, 1.3]}, "<"),
        ({"ci95": [-20.0, 2.0]}, {"ci95": [0.98, 1.3]}, "?"),
        ({"ci95": [-7.0, 7.0], "identical": True}, {"ci95": [1.0, 1.0]}, "="),
    ):
        judged["success"] = {"verdict": "inconclusive", **success}
        judged["time"] = {"verdict": "inconclusive", **time}
        cells = cells_of(record)
        assert (cells["on succ."], cells["on time"]) == (shown, shown)


def test_a_kept_record_is_as_good_as_the_folder(record, tmp_path, capsys):
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(record))
    show(file)
    assert "fixed:100,750" in capsys.readouterr().out
    file.write_text(json.dumps({**record, "status": "running"}))
    with pytest.raises(UsageError, match="is not complete"):
        show(file)


def as_written_now(part):
    """A part of a former version's record."""
    part.pop("needed_for", None)
    if "ratio" in part:
        part.setdefault("seconds", None)
    return [part["low"], part["high"]] if part.keys() == {"low", "high"} else part


@pytest.mark.parametrize("name", ["memory", "modes", "surface"])
def test_rows_are_written_as_they_were_read_with_what_former_versions_lacked(name):
    file = ROOT / f"benchmarks/results/sweep_{name}.json"
    cells = json.loads(file.read_text(), object_hook=as_written_now)["cells"]
    read = read_sweep(SweepFolder.at(file)).cells
    again = [json.loads(json.dumps(fields_of(row, CELL_FIELDS))) for row in read]
    assert all(cell.items() <= row.items() for cell, row in zip(cells, again, strict=True))
    assert check(list[Cell], again, source="the test") == read


@pytest.mark.parametrize("width", [100, 80, 60, 30])
def test_a_narrow_terminal_shows_every_option_and_whole_numbers(capsys, monkeypatch, width):
    """The record has four options, all measures, and cells that differ in `k` alone."""
    monkeypatch.setenv("COLUMNS", str(width))
    show(ROOT / "benchmarks/results/sweep_memory.json")
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    cells = ("clock feedback mode k solved", "rtx4090-oxygen-2603 truth-delayed unified 5 168/200")
    table = [line for line in shown if line.startswith(cells)]
    assert len(table) == 2
    assert "…" not in "".join(shown)
    assert ("act busy a b" in table[0]) == (width >= 100)


def test_a_sweep_without_latency_has_no_columns_of_latency(record):
    for cell in record["cells"]:
        cell |= {"charged_ms": None, "control_steps": None}
    assert {"solved", "idle"} <= cells_of(record).keys()
    assert not {"act", "busy", "a", "b"} & cells_of(record).keys()


def test_columns_of_texts_are_shown_if_a_cell_has_texts_even_if_all_are_wrong(record):
    before = cells_of(record)
    texts = {"texts_per_simulated_s": 2.0, "pc_right_on_delivery": {"narration": 0.0}}
    record["cells"][-1] |= {"staleness_ms": 400.0, **texts}
    assert dict(cells_of(record).items() - before.items()) == {
        "texts/s": "2.0",
        "late": "0.4",
        "narration": "0",
    }


def test_a_line_over_latency_has_one_label_and_colour_in_every_motion(record, tmp_path):
    actions = record["cells"][0]
    record |= {"varied": ["clock", "motion", "while_waiting"]}
    record["cells"] = [
        {
            **actions,
            "control_steps": None,
            "charged_ms": {"actions": latency, "busy": latency},
            "options": {**actions["options"], "motion": motion, "while_waiting": waiting},
        }
        for motion, waits in (("none", ("continue", "hold")), ("shuttle:3", ("hold",)))
        for waiting in waits
        for latency in (0.0, 100.0, 200.0)
    ]
    lines = {motion: solved.lines for motion, (solved, _) in over_latency(read(record)).items()}
    labels = {motion: [line.label for line in each] for motion, each in lines.items()}
    assert labels == {"static": ["continue", "hold"], "oscillating at 3 cm/s": ["hold"]}
    (_, hold), (again,) = lines.values()
    assert hold.colour == again.colour
    draw_sweep(read(record), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep_latency.png"]


def test_the_surface_has_a_line_over_b_for_every_a_of_cells_whose_queries_are_alike(record, tmp_path):
    record["cells"] += [row("actions", 4, 5), row("actions", 8, 10)]
    record["cells"][-1]["control_steps"]["b"]["most"] = 11
    record["cells"].append(row("actions", 2, 10))
    record["cells"][-1]["options"]["feedback"] = "truth"  # its prompts have texts
    ((solved, _),) = over_interval(read(record)).values()
    assert [(line.label, len(line.points)) for line in solved.lines] == [("a = 2", 3), ("a = 4", 1)]
    draw_sweep(read(record), tmp_path)
    assert (tmp_path / "sweep_surface.png").exists()


def test_panels_of_a_row_share_an_axis_that_holds_every_point(record):
    for cell in [*record["cells"]]:
        options = {**cell["options"], "motion": "drift:3"}
        slower = {"restricted_mean_s": 13.0, "restricted_mean_ci95": [12.0, 15.0]}
        record["cells"].append({**cell, **slower, "options": options})
    _, _, *below = draw_surface([read(record)]).axes
    assert len(below) == 2
    assert all(panel.get_ylim()[1] > 15.0 for panel in below)


def test_the_documentation_says_what_the_records_say():
    for page, text in results.render().items():
        assert (ROOT / page).read_text(encoding="utf-8") == text, f"{page}: run python -m scripts.results"


def test_a_page_shows_the_difference_of_two_cells_and_finds_each_by_its_options(record):
    unified, actions = (
        results.cell(read(record), mode="unified"),
        results.cell(read(record), mode="actions", a=2, b=5),
    )
    assert results.difference(unified, actions).startswith("+0.0 (−")
    with pytest.raises(ValueError, match="too many values"):
        results.cell(read(record), mode="actions")
