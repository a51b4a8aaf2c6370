"""The page of a sweep: its frontier, charts over latency and text rate, and a table of its cells."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.cli import pluralize
from configs.sweep import CONDITIONS
from eval.records.sweep_folders import SweepFolder
from eval.report.figures import COLOURS
from eval.report.frontier import (
    Record,
    Row,
    generates_text,
    group_by,
    is_identical,
    is_judged,
    is_non_inferior,
    rate_of,
)
from eval.report.pages.charts import ChartLine, ChartPoint, chart_group, line_chart
from eval.report.pages.reported_runs import format_code, format_machine
from eval.report.pages.run_report import REPORT
from eval.report.pages.site import write_page
from eval.report.sweep_series import (
    CellLine,
    Value,
    latency_lines,
    latency_of,
    seconds_of,
    success_of,
)
from eval.report.sweep_table import all_columns_of, episodes_of, frontier_lines, text_columns
from eval.report.sweep_words import format_condition, format_margins, format_value

_HEADINGS = {
    "text_every": "text every (queries)",
    "tokens_per_frame": "tokens per frame, k",
    "replan_steps": "replan (steps)",
    "while_waiting": "while waiting",
}
_TEXT_HEADINGS = {"texts/s": "texts per s", "late": "late (s)"}
_MEASURES: Mapping[str, tuple[Value, bool]] = {
    "episodes solved (%)": (success_of, True),
    "mean time to success (s)": (seconds_of, False),
}
"""What charts show over latency and over text rate, and whether it is a percentage."""


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
        "sentences": frontier_lines(record),
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
        "is_judged": is_judged(record),
        "plots": {"charts": _charts(record)},
    }
    return write_page(target, "sweep.html.j2", content)


def _title(record: Record) -> str:
    suites = ", ".join(record["config"]["suites"])
    cells, episodes = pluralize(len(record["cells"]), "cell"), pluralize(episodes_of(record), "episode")
    return f"{record['provenance']['policy']} on {suites}: {cells} of {episodes}"


def _facts(record: Record) -> dict[str, str]:
    config, provenance = record["config"], record["provenance"]
    weights = provenance.get("weights_sha256")
    return {
        "Policy": f"{provenance['policy']}{f', weights {weights[:12]}' if weights else ''}",
        "Assets": provenance["assets"]["name"] if provenance.get("assets") else "none",
        "Margins": format_margins(record),
        "Schedules chosen on": config["chosen_on"] or "these episodes",
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
        "verdicts": [_verdict(row, on) for on in ("success", "time")],
    }


def _verdict(row: Row, on: str) -> str | None:
    if row[on] is None:
        return None
    return "identical" if is_identical(row) else row[on]["verdict"]


def _charts(record: Record) -> list[dict[str, Any]]:
    """Success and time over latency, and for every condition over text rate."""
    found: list[dict[str, Any]] = []
    for motion, lines in latency_lines(record).items():
        over_latency = _both(lines, latency_of, "latency until the actions (ms)")
        where = f", {motion}" if "motion" in record["varied"] else ""
        found += chart_group(f"over latency{where}", *over_latency)
    for rows in group_by(record["cells"], CONDITIONS):
        if any(map(generates_text, rows)):
            over_rate = _both(_rate_lines(rows), rate_of, "tokens per simulated second", hollow=True)
            where = format_condition(rows[0]["options"], record["varied"])
            found += chart_group(f"over text rate, {where}; hollow: not shown to be non-inferior", *over_rate)
    return found


def _both(
    lines: Sequence[CellLine], x: Callable[[Row], float], name: str, *, hollow: bool = False
) -> list[dict[str, Any] | None]:
    return [
        line_chart(
            [_line(line, value, x, hollow=hollow) for line in lines], x=name, y=y, is_percent=is_percent
        )
        for y, (value, is_percent) in _MEASURES.items()
    ]


def _rate_lines(rows: Sequence[Row]) -> list[CellLine]:
    """A line per mode; that of mode `actions`, which says nothing, is at a rate of 0."""
    shown = [row for row in rows if generates_text(row) or row["options"]["mode"] == "actions"]
    return [
        CellLine(label=mode, colour=COLOURS[mode], rows=sorted(line, key=rate_of))
        for line in group_by(shown, ["mode"])
        for mode in [line[0]["options"]["mode"]]
    ]


def _line(line: CellLine, value: Value, x: Callable[[Row], float], *, hollow: bool) -> ChartLine:
    """The points of a line; `hollow` where a cell is not shown to be non-inferior to mode `actions`."""
    points = []
    for row in line.rows:
        measured = value(row)
        if measured is not None:
            middle, low, high = measured
            filled = not hollow or row["success"] is None or is_non_inferior(row)
            points.append(ChartPoint(x=x(row), y=middle, low=low, high=high, filled=filled))
    return ChartLine(label=line.label, colour=line.colour, points=points)
