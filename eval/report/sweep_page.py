"""The page of a sweep: charts over latency or over (a, b), and a table of its cells."""

import os
from pathlib import Path
from typing import Any

from configs.errors import pluralize
from eval.records.sweep_folders import SweepFolder
from eval.report.pages.charts import chart_group, line_chart
from eval.report.pages.reported_runs import format_code, format_machine
from eval.report.pages.run_report import REPORT
from eval.report.pages.site import write_page
from eval.report.sweep_plots import over_interval, over_latency
from eval.report.sweep_table import (
    Record,
    Row,
    columns_of,
    episodes_of,
    format_margins,
    is_judged,
    text_columns,
)
from eval.report.table import Table


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
    cells, episodes = pluralize(len(record["cells"]), "cell"), pluralize(episodes_of(record), "episode")
    provenance = record["provenance"]
    weights = provenance.get("weights_sha256")

    def link(row: Row) -> str | None:
        page = folder.path / row["run"] / REPORT / "index.html"
        return Path(os.path.relpath(page, target)).as_posix() if page.is_file() else None

    content = {
        "title": f"{provenance['policy']} on {', '.join(record['config']['suites'])}: {cells} of {episodes}",
        "facts": {
            "Policy": f"{provenance['policy']}{f', weights {weights[:12]}' if weights else ''}",
            "Assets": provenance["assets"]["name"] if provenance.get("assets") else "none",
            "Margins": format_margins(record),
            "Machine": format_machine(provenance.get("hardware") or {}),
            "Code": format_code(provenance),
            "Finished": str(record.get("finished") or "not recorded"),
            "Command": str(provenance["command"]),
        },
        "cells": Table(columns=columns_of(record, link), groups=[record["cells"]]),
        "has_texts": bool(text_columns(record)),
        "is_judged": is_judged(record),
        "plots": {"charts": _charts(record)},
    }
    return write_page(target, "sweep.html.j2", content)


def _charts(record: Record) -> list[dict[str, Any]]:
    """Success and time over latency, and over b for every a."""
    found: list[dict[str, Any]] = []
    for plot in (over_latency(record), over_interval(record)):
        for motion, lines in plot.motions.items():
            solved, time = zip(*lines, strict=True)
            under = f", {motion}" if "motion" in record["varied"] else ""
            found += chart_group(
                f"over {plot.x_label}{under}",
                line_chart(solved, x=plot.x_label, y="episodes solved (%)", is_percent=True),
                line_chart(time, x=plot.x_label, y=plot.time_label),
            )
    return found
