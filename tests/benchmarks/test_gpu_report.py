"""The tables of docs/gpu.md are rendered from records."""

import json
from pathlib import Path

from benchmarks.gpu_report import NOT_MEASURED, ON_TWO_CORES, RESULTS, rendered, report

_ROOT = Path(__file__).resolve().parents[2]


def test_the_documents_tables_are_those_of_the_records():
    text = (_ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    assert rendered(text, RESULTS) == text
    assert report(ON_TWO_CORES) in text


def test_a_folder_without_results_says_so(tmp_path):
    assert report(tmp_path) == NOT_MEASURED


def test_rows_of_the_benchmark_become_a_table_for_each_workload(tmp_path):
    rows = (_ROOT / "benchmarks/results/bench_small.jsonl").read_text(encoding="utf-8")
    (tmp_path / "modes_small.jsonl").write_text(rows, encoding="utf-8")
    tables = report(tmp_path)
    lines = [json.loads(line) for line in rows.splitlines()]
    cells = [
        line
        for line in tables.splitlines()
        if line.startswith("| ") and "mode |" not in line and ":--" not in line
    ]
    assert len(cells) == len(lines)
    unified = next(line for line in lines if line["tokens_per_frame"] == 1)
    assert f"| unified, k = 1 | {unified['action_ms_p50']:.2f} | {unified['frame_ms_p50']:.2f} |" in tables
    assert (
        "{:.2f} ({:.2f}–{:.2f})".format(unified["speedup_over_isolated"], *unified["speedup_ci95"]) in tables
    )


def test_the_adapters_part_stands_beside_what_its_authors_measured_on_their_device(tmp_path):
    (line, *_) = (_ROOT / "benchmarks/results/bench_small.jsonl").read_text(encoding="utf-8").splitlines()
    row = json.loads(line) | {"mode": "shared", "text_tokens": 11, "tokens_per_frame": None}
    row["stage_ms"]["prefill"] = 40.0
    frames = {"off": 60.0, "exact": 68.5, "published": 69.25}
    for device, theirs in (("NVIDIA GeForce RTX 4090", True), ("NVIDIA H200", False)):
        rows = [
            row | {"device": device, "adapter": mask, "frame_ms_p50": frame} for mask, frame in frames.items()
        ]
        (tmp_path / "adapter_x.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
        tables = report(tmp_path)
        assert (
            "takes 8.50 ms (mask exact) and 9.25 ms (mask published) longer with the adapter than without; "
            "prefill takes 40.00 ms." in tables
        )
        assert ("measured 8.16 and 47.66 ms on this device" in tables) == theirs
