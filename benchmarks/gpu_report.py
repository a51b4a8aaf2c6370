"""`python -m benchmarks.gpu_report [FOLDER]`: the results of `benchmarks/gpu.sh` as Markdown tables."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.roofline import COLUMNS
from contracts.mode import Mode
from eval.bench.row import Row, RowFile
from eval.bench.table import TIMES, by_workload, rows_table
from eval.bench.workloads import BenchConfiguration
from eval.report.table import Column, Table, number, to_markdown

RESULTS = Path(__file__).parent / "results/gpu"
NOT_MEASURED = "Not measured on a GPU yet."


def report(folder: Path) -> str:
    """All tables of a folder of results, or `NOT_MEASURED`."""
    sections: dict[str, Callable[[Any], str]] = {
        "roofline_*.json": _roofline,
        "adapter_*.jsonl": _modes,
        "modes_*.jsonl": _modes,
        "service_*.jsonl": lambda rows: _modes(rows, ", with the multi-process service"),
        "soak.json": _endurance,
        "energy.json": _endurance,
        "reference*.json": _reference,
    }
    found = [
        section(RowFile(path).rows if path.suffix == ".jsonl" else _read(path))
        for pattern, section in sections.items()
        for path in sorted(folder.glob(pattern))
    ]
    return "\n\n".join(found) or NOT_MEASURED


def _read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def _modes(rows: Sequence[Row], added: str = "") -> str:
    groups = by_workload(rows)
    return "\n\n".join(_titled(group[0].title + added, rows_table(group, TIMES)) for group in groups)


def _roofline(record: Mapping[str, Any]) -> str:
    title = f"{record['policy']}, {record['dtype']}, {record['device']}: stages against their floors"
    rows = [{"robots": one["robots"]} | stage for one in record["rooflines"] for stage in one["stages"]]
    return _titled(
        title, Table(columns=[Column("robots", lambda row: row["robots"]), *COLUMNS], groups=[rows])
    )


def _endurance(record: Mapping[str, Any]) -> str:
    return _table(
        f"{record['policy']}, {record['device']}: many queries in a row; energy: {record['energy']}",
        record["rows"],
        {
            "mode": _label,
            "queries": lambda row: str(row["queries"]),
            "memory, first and last tenth, MB": lambda row: ", ".join(
                f"{row['memory_bytes'][place] / 1e6:,.1f}" for place in (0, -1)
            ),
            "frame p50, first and last tenth, ms": lambda row: ", ".join(
                f"{row[f'frame_ms_p50_{which}_tenth']:.2f}" for which in ("first", "last")
            ),
            "joules per query": lambda row: number(row["joules_per_query"], ".2f"),
            "mean power, W": lambda row: number(row["mean_watts"], ".0f"),
        },
    )


def _reference(record: Mapping[str, Any]) -> str:
    about = record["published"]
    return _table(
        f"{record['policy']}, {record['dtype']}, {about['device']}: OxyGen's published code "
        f"(JAX {about['versions']['jax']}) and ours, N = {record['text_tokens']}, "
        f"load average {record['hardware']['load_average'][0]}",
        record["rows"],
        {
            "code": lambda row: row["code"] if row["code"] == "published" else f"ours, {row['code']}",
            "mode": _label,
            "frame, ms": lambda row: f"{row['frame_ms_median']:.2f}",
            "published / this": lambda row: _with_interval(
                row["published_over_this"], row["published_over_this_ci95"]
            ),
        },
    )


def _label(row: Mapping[str, Any]) -> str:
    return BenchConfiguration(mode=Mode(row["mode"]), tokens_per_frame=row["tokens_per_frame"]).label


def _with_interval(value: float | None, bounds: Sequence[float] | None) -> str:
    interval = "" if bounds is None else " ({:.2f}–{:.2f})".format(*bounds)
    return number(value, ".2f") + interval


def _table(title: str, rows: Iterable[Any], columns: Mapping[str, Callable[[Any], str]]) -> str:
    """A Markdown table under its title."""
    shown = [Column(name, cell, align="left", is_markdown=True) for name, cell in columns.items()]
    return _titled(title, Table(columns=shown, groups=[list(rows)]))


def _titled(title: str, table: Table) -> str:
    return f"**{title}**\n\n{to_markdown(table)}"


if __name__ == "__main__":
    sys.stdout.write(f"{report(Path(sys.argv[1]) if sys.argv[1:] else RESULTS)}\n")
