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
    cells = [line for line in tables.splitlines() if line.startswith("| ") and "mode |" not in line]
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


def test_candidates_become_a_table_and_what_was_left_out_a_line(tmp_path):
    timed = {"stage": "denoise", "ms": [4.0, 4.2], "floor_ms": 2.0, "equal_tokens": None}
    rows = [
        {
            **timed,
            "alternative": "as served",
            "ms_median": 4.1,
            "served_over_this": 1.0,
            "served_over_this_ci95": [1.0, 1.0],
            "equal_bits": True,
            "difference": 0.0,
        },
        {
            **timed,
            "alternative": "jax.nn attention",
            "ms_median": 3.0,
            "served_over_this": 1.37,
            "served_over_this_ci95": [1.3, 1.4],
            "equal_bits": False,
            "difference": 0.0004,
        },
        {
            "stage": "denoise",
            "alternative": "cuDNN attention",
            "left_out": "needs a GPU",
            "floor_ms": 2.0,
        },
    ]
    record = {"policy": "small", "dtype": "float32", "device": "cpu", "rows": rows}
    (tmp_path / "candidates.json").write_text(json.dumps(record))
    assert report(tmp_path).splitlines()[4:] == [
        "| denoise | as served | 4.100 | 1.00 (1.00–1.00) | 2.05 | the same bits |",
        "| denoise | jax.nn attention | 3.000 | 1.37 (1.30–1.40) | 1.50 | differs by 4e-04 of the largest |",
        "",
        "Left out (needs a GPU): denoise, cuDNN attention.",
    ]
