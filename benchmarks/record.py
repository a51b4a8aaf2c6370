"""Writes a benchmark's figures with their commit, hardware, versions and command."""

import json
from pathlib import Path
from typing import Any

from eval.bench.row import provenance_of


def record(benchmark: str, row: dict[str, Any], output: Path) -> None:
    """Write the figures of `python -m benchmarks.<benchmark>` to a JSON file, and print them."""
    print(json.dumps(write_record(benchmark, row, output), indent=1))


def write_record(benchmark: str, row: dict[str, Any], output: Path) -> dict[str, Any]:
    """Write the figures of `python -m benchmarks.<benchmark>` to a JSON file; returns its content."""
    row = {**row, **provenance_of(f"benchmarks.{benchmark}")}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return row
