"""Tables, pages and figures hold every configuration, and what speaks against trusting it."""

import dataclasses
import io
import json
import re

import pytest
from rich.console import Console

from eval.bench.page import draw, write_bench_page
from eval.bench.table import print_rows
from tests.eval.bench.conftest import WORKLOAD


def printed(rows, width=110) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_rows(rows, console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 110])
def test_the_tables_have_a_line_for_each_configuration_and_cut_nothing_off(made_up, width):
    rows = made_up()
    text = printed(rows, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for row in rows:
        first, second = (line.split() for line in text.splitlines() if line.startswith(f" {row.mode} "))
        assert f"{row.frame_ms_p50:.0f}" in first
        assert f"{row.frame_ms_p99:.0f}" in second


def test_a_and_b_are_the_medians_in_whole_control_steps(made_up):
    times = {"action_ms_p50": 50.0, "frame_ms_p50": 50.1, "action_ms_p95": 50.0, "frame_ms_p95": 250.0}
    isolated = dataclasses.replace(made_up()[1], **times)
    assert "20 Hz, medians (p95): isolated: (1, 2) (1, 5). a:" in " ".join(printed([isolated]).split())


def test_untrustworthy_measurements_are_warned_of(made_up):
    rows = list(made_up())
    warnings = ("compiled something", "were dropped", "gave other actions", "The machine was busy")
    assert not any(warning in printed(rows) for warning in warnings)
    assert "equal, bit for bit" in printed(rows)
    rows[2] = dataclasses.replace(
        rows[2],
        hardware={**rows[2].hardware, "load_average": [7.0, 1.0, 1.0]},
        compiles_after_warmup=1,
        requests_dropped=3,
        actions_equal=False,
    )
    text = printed(rows)
    assert all(warning in text for warning in warnings)
    assert "equal, bit for bit" not in text
    assert "service did not run" in text
    assert "service did not run" not in printed(rows[:3])


def test_the_speedup_is_drawn_in_both_formats_if_isolated_was_measured(made_up, tmp_path):
    written = draw([*made_up(), *made_up(dataclasses.replace(WORKLOAD, text_tokens=60))], tmp_path / "rows")
    assert [path.name for path in written] == ["rows_speedup.png", "rows_speedup.svg"]
    assert all(path.stat().st_size > 5000 for path in written)
    without_baseline = [dataclasses.replace(row, speedup_over_isolated=None) for row in made_up()]
    assert draw(without_baseline, tmp_path / "rows") == []


def charts(page):
    """The data of the page's charts by title."""
    found = re.search(r'id="plots">(.*?)</script>', page.read_text(), re.DOTALL)[1]
    return {group["title"]: group["charts"] for group in json.loads(found)["charts"]}


def test_unified_is_a_line_over_k_and_other_modes_are_level(made_up, tmp_path):
    rows = list(made_up())
    rows.append(dataclasses.replace(rows[2], tokens_per_frame=5, speedup_over_isolated=2.0))
    page = write_bench_page(rows, tmp_path / "page")
    (speedup, latency), _ = charts(page).values()
    lines = {line["label"]: (line["x"], line["y"]) for line in speedup["series"]}
    assert (lines["unified"], lines["isolated"]) == (([1, 5], [2.5, 2.0]), ([1, 5], [1.0, 1.0]))
    assert {line["label"] for line in latency["series"]} == {row.mode for row in rows}
    assert page.read_text().count('<td><span class="label">') == len(rows)


def test_with_deadlines_other_budgets_are_level_and_each_adapter_is_a_line(made_up, tmp_path):
    unified = made_up()[2]
    alone = [
        *(dataclasses.replace(unified, tokens_per_frame=None, deadline_ms=ms) for ms in (100.0, 50.0)),
        *(dataclasses.replace(unified, mode="interleaved", tokens_per_frame=k) for k in (1, 30)),
    ]
    exact = [dataclasses.replace(row, adapter="exact") for row in alone]
    (speedup, _), _ = charts(write_bench_page([*alone, *exact], tmp_path / "page")).values()
    assert all(line["x"] == [50.0, 100.0] for line in speedup["series"])
    labels = ["unified", "interleaved, k = 1", "interleaved, k = 30"]
    assert [line["label"] for line in speedup["series"]] == [
        *labels,
        *(f"{label}, adapter exact" for label in labels),
    ]


def test_workloads_have_their_own_charts_and_a_column_and_warnings_are_shown(made_up, tmp_path):
    compiled = [dataclasses.replace(row, compiles_after_warmup=1) for row in made_up()]
    page = write_bench_page([*compiled, *made_up(dataclasses.replace(WORKLOAD, robots=2))], tmp_path / "page")
    assert len(charts(page)) == 3
    assert ">workload</th>" in page.read_text()
    assert f'<p class="note">{len(compiled)} configurations compiled something' in page.read_text()
    assert ">workload</th>" not in write_bench_page(compiled, tmp_path / "one").read_text()
