"""The tables of docs/gpu.md are rendered from records."""

import json
from pathlib import Path

from benchmarks.gpu_report import NOT_MEASURED, RESULTS, TABLES, report

_ROOT = Path(__file__).resolve().parents[2]


def test_the_documents_tables_are_those_of_the_records():
    text = (_ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    assert TABLES.replaced(text, report(RESULTS)) == text
    assert report(RESULTS.parent / "two_cores") in text


def test_a_folder_without_results_says_so(tmp_path):
    assert report(tmp_path) == NOT_MEASURED


def test_rows_of_the_benchmark_become_a_table_for_each_workload(tmp_path):
    rows = (_ROOT / "benchmarks/results/bench_small.jsonl").read_text(encoding="utf-8")
    (tmp_path / "modes_small.jsonl").write_text(rows, encoding="utf-8")
    tables = report(tmp_path)
    lines = [json.loads(line) for line in rows.splitlines()]
    cells = [line for line in tables.splitlines() if line.startswith("| ") and "mode |" not in line]
    assert len(cells) == len(lines)
    unified = next(line for line in lines if line["tokens_per_frame"] == 1)
    assert f"| unified, k = 1 | {unified['action_ms_p50']:.2f} | {unified['frame_ms_p50']:.2f} |" in tables
    assert (
        "{:.2f} ({:.2f}–{:.2f})".format(unified["speedup_over_isolated"], *unified["speedup_ci95"]) in tables
    )
