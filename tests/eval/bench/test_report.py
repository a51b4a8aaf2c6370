"""Tables hold every configuration at any width; warnings and figures are complete."""

import dataclasses
import io

import pytest
from rich.console import Console

from eval.bench.costs import Peaks
from eval.bench.plots import draw
from eval.bench.table import print_roofline, print_rows
from tests.eval.bench.conftest import WORKLOAD


def printed(rows, width=110) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_rows(rows, console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 110, 200])
def test_the_table_has_a_line_for_each_configuration_and_cuts_nothing_off(made_up, width):
    text = printed(made_up(), width)
    for mode in ("actions", "isolated", "unified", "parallel"):
        assert sum(line.split()[:1] == [mode] for line in text.splitlines()) == 2, "one in either table"
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    unified, _ = (line.split() for line in text.splitlines() if line.split()[:1] == ["unified"])
    assert {"1", "210", "2.50", "100"} <= set(unified)
    assert ("2.50–2.50" in unified) == (width >= 110)


def test_the_second_table_has_the_tails_the_texts_and_the_memory(made_up):
    """In 80 columns, with the widest figures and a deadline for k."""
    rows = [
        dataclasses.replace(
            row,
            action_ms_p99=123.0,
            frame_ms_p99=12345.0,
            first_token_ms_p50=23456.0,
            first_token_ms_p99=34567.0,
            request_ms_p50=45678.0,
            request_ms_p99=56789.0,
            chunks_per_s=7.89,
            needed_memory_bytes=10 * 2**30,
            deadline_ms=100.0 if row.mode == "unified" else None,
        )
        for row in made_up()
    ]
    text = printed(rows, 80)
    assert max(map(len, text.splitlines())) <= 80
    _, unified = (line.split() for line in text.splitlines() if line.split()[:1] == ["unified"])
    figures = ["123", "12345", "23456", "34567", "45678", "56789", "7.9", "10.00"]
    assert unified == ["unified", "100", "ms", *figures]


def test_a_and_b_are_the_medians_in_whole_control_steps(made_up):
    rows = [
        dataclasses.replace(
            row, action_ms_p50=50.0, frame_ms_p50=50.1, action_ms_p95=50.0, frame_ms_p95=250.0
        )
        for row in made_up()
        if row.mode == "isolated"
    ]
    assert "20 Hz, medians (p95): isolated: (1, 2) (1, 5). a:" in " ".join(printed(rows).split())


def test_every_workload_has_its_own_table(made_up):
    text = printed([*made_up(), *made_up(dataclasses.replace(WORKLOAD, robots=2))])
    assert "N = 30, every:1, 10 denoise steps, 1 robot of 2 cameras" in text
    assert "N = 30, every:1, 10 denoise steps, 2 robots of 2 cameras" in text


def test_untrustworthy_measurements_are_warned_of(made_up):
    rows = list(made_up())
    assert "compiled" not in printed(rows)
    assert "dropped" not in printed(rows)
    assert "equal, bit for bit" in printed(rows)
    assert "busy" not in printed(rows)
    hardware = {**rows[2].hardware, "load_average": [7.0, 1.0, 1.0]}
    spoilt = {"compiles_after_warmup": 1, "requests_dropped": 3, "actions_equal": False}
    rows[2] = dataclasses.replace(rows[2], hardware=hardware, **spoilt)
    assert "1 configurations compiled" in printed(rows)
    assert "gave other actions" in printed(rows)
    assert "service did not run" in printed(rows)
    assert "service did not run" not in printed(rows[:3])
    assert "equal, bit for bit" not in printed(rows)
    assert "Texts were dropped for lack of slots: 3 of 12 by unified, k = 1." in printed(rows)
    assert "load 7.0 on 2 cores" in printed(rows)


def test_figures_are_drawn_in_both_formats(made_up, tmp_path):
    longer = dataclasses.replace(WORKLOAD, text_tokens=60)
    written = draw([*made_up(), *made_up(longer)], tmp_path / "rows")
    assert [path.name for path in written] == [
        "rows_speedup.png",
        "rows_speedup.svg",
        "rows_tradeoff.png",
        "rows_tradeoff.svg",
    ]
    for path in written:
        head = path.read_bytes()[:400]
        assert head.startswith(b"\x89PNG") or b"<svg" in head or b"<?xml" in head
        assert path.stat().st_size > 5000


def test_without_the_baseline_there_is_no_speedup_figure(made_up, tmp_path):
    rows = [dataclasses.replace(row, speedup_over_isolated=None) for row in made_up()]
    assert [path.name for path in draw(rows, tmp_path / "rows")] == ["rows_tradeoff.png", "rows_tradeoff.svg"]


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
