"""Tables hold every configuration at any width; warnings and figures are complete."""

import dataclasses
import io

import pytest
from rich.console import Console

from eval.bench.page import draw
from eval.bench.roofline import Peaks, print_roofline
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
        first, second = (line.split() for line in text.splitlines() if line.split()[:1] == [row.mode])
        assert f"{row.frame_ms_p50:.0f}" in first
        assert f"{row.frame_ms_p99:.0f}" in second
        assert ("{:.2f}–{:.2f}".format(*row.speedup_ci95) in first) == (width == 110)


def test_a_and_b_are_the_medians_in_whole_control_steps(made_up):
    rows = [
        dataclasses.replace(
            row, action_ms_p50=50.0, frame_ms_p50=50.1, action_ms_p95=50.0, frame_ms_p95=250.0
        )
        for row in made_up()
        if row.mode == "isolated"
    ]
    assert "20 Hz, medians (p95): isolated: (1, 2) (1, 5). a:" in " ".join(printed(rows).split())


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


def test_figures_are_drawn_in_both_formats(made_up, tmp_path):
    longer = dataclasses.replace(WORKLOAD, text_tokens=60)
    written = draw([*made_up(), *made_up(longer)], tmp_path / "rows")
    assert [path.name for path in written] == [
        "rows_speedup.png",
        "rows_speedup.svg",
        "rows_tradeoff.png",
        "rows_tradeoff.svg",
    ]
    assert all(path.stat().st_size > 5000 for path in written)
    without_baseline = [dataclasses.replace(row, speedup_over_isolated=None) for row in made_up()]
    assert {path.stem for path in draw(without_baseline, tmp_path / "rows")} == {"rows_tradeoff"}


def test_a_roofline_shows_measured_by_minimum_time():
    cost = {"flops": 2e9, "bytes": 1e6, "floor_ms": 2.0, "bound": "compute"}
    stages = [
        cost | {"name": "prefill", "measured_ms": 3.0, "measured_over_floor": 1.5},
        cost | {"name": "trunk", "measured_ms": None, "measured_over_floor": None},
    ]
    console = Console(file=io.StringIO(), width=110)
    print_roofline(stages, Peaks(flops_per_s=1e12, bytes_per_s=1e9, source="a guess"), "tiny", console)
    text = console.file.getvalue()
    (prefill,) = (line.split() for line in text.splitlines() if "prefill" in line)
    assert prefill == ["prefill", "2.00", "1.0", "compute", "2.00", "3.00", "1.50"]
    assert "1 TFLOP/s, 1 GB/s; a guess" in text
