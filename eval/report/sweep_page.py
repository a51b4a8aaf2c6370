"""The page of a sweep: charts over latency or over (a, b), and a table of its cells."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from configs.errors import pluralize
from eval.records.sweep_folders import SweepFolder
from eval.report.figures import COLOURS
from eval.report.pages.charts import ChartLine, ChartPoint, chart_group, line_chart
from eval.report.pages.reported_runs import format_code, format_machine
from eval.report.pages.run_report import REPORT
from eval.report.pages.site import write_page
from eval.report.sweep_series import (
    CellLine,
    Value,
    interval_of,
    latency_lines,
    latency_of,
    restricted_of,
    seconds_of,
    success_of,
    surface_lines,
)
from eval.report.sweep_table import (
    Record,
    Row,
    all_columns_of,
    current_tasks,
    episodes_of,
    format_margins,
    format_value,
    is_identical,
    is_judged,
    text_columns,
)

_HEADINGS = {
    "text_every": "text every (queries)",
    "tokens_per_frame": "tokens per frame, k",
    "replan_steps": "replan (steps)",
    "while_waiting": "while waiting",
}
_TEXT_HEADINGS = {"texts/s": "texts per s", "late": "late (s)"}
_SOLVED = ("episodes solved (%)", success_of)
_TIME = ("mean time to success (s)", seconds_of)
_RESTRICTED = ("restricted mean time (s)", restricted_of)


def write_sweep_page(folder: SweepFolder, record: Record, page_folder: Path | None = None) -> Path:
    """Write the page of a sweep whose episodes have all been played.

    Args:
        folder: The sweep.
        record: Its `sweep.json`.
        page_folder: Folder of the page. Default: `report` in the sweep's folder.

    Returns:
        The page.

    Raises:
        UsageError: The folder cannot be written.
    """
    target = folder.path / REPORT if page_folder is None else page_folder
    cells, texts = record["cells"], text_columns(record)
    content = {
        "title": _title(record),
        "facts": _facts(record),
        "axes": [_HEADINGS.get(axis, axis) for axis in all_columns_of(record)],
        "cells": [
            {
                **_cell(row, record, _link(folder, row, target)),
                "texts": [values[place] for values in texts.values()],
            }
            for place, row in enumerate(cells)
        ],
        "text_headings": [_TEXT_HEADINGS.get(name, f"{name} (%)") for name in texts],
        "current_headings": [f"{task.replace('_', ' ')} now (%)" for task in current_tasks(record)],
        "is_judged": is_judged(record),
        "plots": {"charts": _charts(record)},
    }
    return write_page(target, "sweep.html.j2", content)


def _title(record: Record) -> str:
    suites = ", ".join(record["config"]["suites"])
    cells, episodes = pluralize(len(record["cells"]), "cell"), pluralize(episodes_of(record), "episode")
    return f"{record['provenance']['policy']} on {suites}: {cells} of {episodes}"


def _facts(record: Record) -> dict[str, str]:
    provenance = record["provenance"]
    weights = provenance.get("weights_sha256")
    return {
        "Policy": f"{provenance['policy']}{f', weights {weights[:12]}' if weights else ''}",
        "Assets": provenance["assets"]["name"] if provenance.get("assets") else "none",
        "Margins": format_margins(record),
        "Machine": format_machine(provenance.get("hardware") or {}),
        "Code": format_code(provenance),
        "Finished": str(record.get("finished") or "not recorded"),
        "Command": str(provenance["command"]),
    }


def _link(folder: SweepFolder, row: Row, target: Path) -> str | None:
    """The cell's report, as seen from the page; None if there is none."""
    page = folder.path / row["run"] / REPORT / "index.html"
    return Path(os.path.relpath(page, target)).as_posix() if page.is_file() else None


def _cell(row: Row, record: Record, link: str | None) -> dict[str, Any]:
    """A cell as the table shows it."""
    return {
        **row,
        "link": link,
        "colour": COLOURS[row["options"]["mode"]],
        "options": [format_value(axis, row["options"]) for axis in all_columns_of(record)],
        "seconds": seconds_of(row),
        "charged_ms": row["charged_ms"] or {},
        "verdicts": [_verdict(row, on) for on in ("success", "time", "restricted")],
        "measures": [
            row.get("restricted_mean_s"),
            row.get("motion", {}).get("log_dimensionless_jerk", {}).get("mean"),
            *(row.get("current", {}).get(task, {}).get("pc") for task in current_tasks(record)),
        ],
    }


def _verdict(row: Row, on: str) -> str | None:
    if row.get(on) is None:
        return None
    return "identical" if is_identical(row) else row[on]["verdict"]


def _charts(record: Record) -> list[dict[str, Any]]:
    """Success and time over latency, and over b for every a."""
    latency, interval = "latency until the actions (ms)", "control steps until the next query, b"
    shown = (
        (latency, latency_of, (_SOLVED, _TIME), latency_lines(record)),
        (interval, interval_of, (_SOLVED, _RESTRICTED), surface_lines(record)),
    )
    found: list[dict[str, Any]] = []
    for name, x, measures, by_motion in shown:
        for motion, lines in by_motion.items():
            charts = [
                line_chart(
                    [_line(line, x, value) for line in lines], x=name, y=y, is_percent=value is success_of
                )
                for y, value in measures
            ]
            found += chart_group(
                f"over {name}" + (f", {motion}" if "motion" in record["varied"] else ""), *charts
            )
    return found


def _line(line: CellLine, x: Callable[[Row], float], value: Value) -> ChartLine:
    points = [
        ChartPoint(x=x(row), y=measured[0], low=measured[1], high=measured[2])
        for row in line.rows
        if (measured := value(row)) is not None
    ]
    return ChartLine(label=line.label, colour=line.colour, points=points)
