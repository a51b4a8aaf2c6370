"""Writes a benchmark's figures with their commit, hardware, versions and command."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from eval.records import provenance


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
