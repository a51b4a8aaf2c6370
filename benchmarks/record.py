"""Writes a benchmark's figures with their commit, hardware, versions and command."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.bench.rows import paired_ratio
from eval.records import provenance


def ratio_columns(name: str, reference: Sequence[float], own: Sequence[float]) -> dict[str, Any]:
    """The paired ratio of two configurations' times and its interval, as columns of a row."""
    ratio = paired_ratio(reference, own)
    bounds = ratio.ci95
    return {name: ratio.value, f"{name}_ci95": None if bounds is None else (bounds.low, bounds.high)}


def record(benchmark: str, row: dict[str, Any], output: Path) -> None:
    """Write the figures of `python -m benchmarks.<benchmark>` to a JSON file, and print them."""
    print(json.dumps(write_record(benchmark, row, output), indent=1))


def write_record(benchmark: str, row: dict[str, Any], output: Path) -> dict[str, Any]:
    """Write the figures of `python -m benchmarks.<benchmark>` to a JSON file; returns its content."""
    row = {
        **row,
        **provenance.git_state(),
        "hardware": provenance.hardware(),
        "versions": provenance.versions(),
        "command": shlex.join(["python", "-m", f"benchmarks.{benchmark}", *sys.argv[1:]]),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return row
