"""The page of a benchmark shows every row, each mode over k, and what speaks against trusting it."""

import dataclasses
import json
import re

import pytest

from eval.bench.page import write_bench_page
from tests.eval.bench.conftest import WORKLOAD


def charts(page):
    """The data of the page's charts by title."""
    found = re.search(r'id="plots">(.*?)</script>', page.read_text(), re.DOTALL)[1]
    return {group["title"]: group["charts"] for group in json.loads(found)["charts"]}


@pytest.fixture
def over_k(made_up):
    """The made-up rows, and `unified` at a second k."""
    rows = list(made_up())
    (unified,) = [row for row in rows if row.mode == "unified"]
    return [*rows, dataclasses.replace(unified, tokens_per_frame=5, speedup_over_isolated=2.0)]


def test_unified_is_a_line_over_k_and_other_modes_are_level(over_k, tmp_path):
    page = write_bench_page(over_k, tmp_path / "page")
    titles = charts(page)
    assert len(titles) == 2
    speedup, latency = next(iter(titles.values()))
    lines = {line["label"]: line for line in speedup["series"]}
    assert (lines["unified"]["x"], lines["unified"]["y"]) == ([1, 5], [2.5, 2.0])
    assert lines["isolated"]["x"] == [1, 5]
    assert lines["isolated"]["y"] == [1.0, 1.0]
    assert {line["label"] for line in latency["series"]} == {row.mode for row in over_k}
    assert page.read_text().count('<td><span class="label">') == len(over_k)


def test_with_deadlines_other_budgets_are_level_and_each_adapter_is_a_line(over_k, tmp_path):
    first = next(row for row in over_k if row.mode == "unified")
    alone = [
        *(dataclasses.replace(first, tokens_per_frame=None, deadline_ms=ms) for ms in (100.0, 50.0)),
        *(dataclasses.replace(first, mode="interleaved", tokens_per_frame=k) for k in (1, 30)),
    ]
    exact = [dataclasses.replace(row, adapter="exact") for row in alone]
    (speedup, _), _ = charts(write_bench_page([*alone, *exact], tmp_path / "page")).values()
    assert all(line["x"] == [50.0, 100.0] for line in speedup["series"])
    labels = ["unified", "interleaved, k = 1", "interleaved, k = 30"]
    labels += [f"{label}, adapter exact" for label in labels]
    assert [line["label"] for line in speedup["series"]] == labels


def test_workloads_have_their_own_charts_and_a_column_and_warnings_are_shown(made_up, tmp_path):
    compiled = [dataclasses.replace(row, compiles_after_warmup=1) for row in made_up()]
    page = write_bench_page([*compiled, *made_up(dataclasses.replace(WORKLOAD, robots=2))], tmp_path / "page")
    assert len(charts(page)) == 3
    assert ">workload</th>" in page.read_text()
    assert f'<p class="note">{len(compiled)} configurations compiled something' in page.read_text()
    assert ">workload</th>" not in write_bench_page(compiled, tmp_path / "one").read_text()
