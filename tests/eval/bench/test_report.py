"""Tables and figures hold every configuration, and what speaks against trusting it."""

import dataclasses
import io

import pytest
from rich.console import Console

from eval.bench.figure import draw
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
    warnings = ("compiled something", "gave other actions", "The machine was busy")
    assert not any(warning in printed(rows) for warning in warnings)
    assert "equal, bit for bit" in printed(rows)
    rows[2] = dataclasses.replace(
        rows[2],
        hardware={**rows[2].hardware, "load_average": [7.0, 1.0, 1.0]},
        compiles_after_warmup=1,
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
