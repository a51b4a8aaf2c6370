"""Writes a benchmark's figures with their commit, hardware, versions and command."""

import json
from pathlib import Path
from typing import Any

from eval.bench.row import row_provenance
from eval.records.json_files import write_json


def record(row: dict[str, Any], output: Path) -> None:
    """Write a benchmark's figures to a JSON file, and print them."""
    print(json.dumps(write_record(row, output), indent=1))


def write_record(row: dict[str, Any], output: Path) -> dict[str, Any]:
    """Write a benchmark's figures to a JSON file; returns its content."""
    row = {**row, **row_provenance()}
    write_json(output, row)
    return row
