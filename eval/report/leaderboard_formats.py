"""Writes a leaderboard as Markdown, CSV, JSON, LaTeX and a page."""

import csv
import dataclasses
import importlib.resources
import io
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from eval.records.json_files import write_json
from eval.report.figures import COLOURS, OTHER_COLOURS
from eval.report.leaderboard_tables import GROUP_COLUMNS, BoardColumn, Entry, Leaderboard, RankedTable
from eval.report.pages.site import write_page, writing
from eval.report.plain_text import escape_control, in_csv, in_markdown, in_markdown_code, latex_table

_TEMPLATE = importlib.resources.files("eval.report.pages").joinpath("leaderboard.md.j2")
_GROUPS = ("policy", "mode", "assets", "control", "weights", "clock")
"""Headings of the page's columns that rows can be grouped by."""


def write_leaderboard(board: Leaderboard, folder: Path) -> Path:
    """Write the page and the other formats to a folder.

    Returns:
        The page.

    Raises:
        UsageError: The folder cannot be written.
    """
    texts = {
        "leaderboard.md": to_markdown(board),
        "leaderboard.csv": to_csv(board),
        "leaderboard.tex": to_latex(board),
    }
    with writing(folder):
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        write_json(folder / "leaderboard.json", to_json(board))
    content = {
        "title": "Leaderboard",
        "board": board,
        "apart": _apart,
        "rates": _rates,
        "groups": _GROUPS,
        "formats": [*texts, "leaderboard.json"],
    }
    return write_page(folder, "leaderboard.html.j2", content)


def to_markdown(board: Leaderboard) -> str:
    """The leaderboard as Markdown."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"in_markdown": in_markdown, "in_markdown_code": in_markdown_code}
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(suites=board.suites, unranked=board.unranked, error_budget=board.error_budget)


def to_csv(board: Leaderboard) -> str:
    """One line per run and suite, in the columns of all tables and with the table's number."""
    records = []
    numbered = [
        (suite, *each) for suite, tables in board.suites.items() for each in enumerate(tables, start=1)
    ]
    for suite, number, table in numbered:
        columns = [*table.columns, *_apart(table)]
        for row in table.rows:
            cells = {column.heading: column.cell(row.entry, _entries(table)) for column in columns}
            ranks = {"rank": row.rank.best, "best rank": row.rank.best, "worst rank": row.rank.worst}
            records.append(
                {"suite": suite, "table": number, "protocol": row.entry.protocol, **ranks, **cells}
            )
    headings = dict.fromkeys(heading for record in records for heading in record)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(headings), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: in_csv(value) for name, value in record.items()} for record in records)
    return text.getvalue()


def to_json(board: Leaderboard) -> dict[str, Any]:
    """The tables with unrounded results, and the runs that are not ranked."""
    return {
        "error_budget": board.error_budget,
        "suites": {
            suite: [
                {
                    "title": table.title,
                    "protocol": table.rows[0].entry.protocol,
                    "rows": [
                        {
                            "rank": row.rank.best,
                            "possible_ranks": [row.rank.best, row.rank.worst],
                            "run": dataclasses.asdict(row.entry.run),
                            "results": dataclasses.asdict(row.entry.row),
                        }
                        for row in table.rows
                    ],
                }
                for table in tables
            ]
            for suite, tables in board.suites.items()
        },
        "not_ranked": [dataclasses.asdict(each) for each in board.unranked],
    }


def to_latex(board: Leaderboard) -> str:
    """A `tabular` per table, with the rules of package `booktabs`."""
    parts = ["% \\usepackage{booktabs}"]
    for suite, tables in board.suites.items():
        for table in tables:
            columns = ["rank", "possible ranks", *(column.heading for column in table.columns)]
            alignment = "".join("l" if column.rule == ":--" else "r" for column in table.columns)
            lines = [[str(row.rank.best), str(row.rank), *row.cells] for row in table.rows]
            parts += [
                f"% {escape_control(' '.join(f'{suite}: {table.title}'.split()))}",
                *latex_table(f"rc{alignment}", [columns], lines),
                "",
            ]
    return "\n".join(parts)


def _entries(table: RankedTable) -> list[Entry]:
    return [row.entry for row in table.rows]


def _rates(table: RankedTable) -> list[dict[str, Any]]:
    """The bars of a table's success rates, in their modes' colours."""
    return [
        {
            "label": ", ".join(row.cells[:2]),
            "colour": COLOURS.get(row.entry.run.mode, OTHER_COLOURS[0]),
            "percent": row.entry.row.pc_success,
            "low": row.entry.row.pc_success_ci95[0],
            "high": row.entry.row.pc_success_ci95[1],
        }
        for row in table.rows
        if row.entry.row.pc_success_ci95 is not None
    ]


def _apart(table: RankedTable) -> list[BoardColumn]:
    """The grouping columns whose values differ within a table."""
    entries = _entries(table)
    return [column for column in GROUP_COLUMNS if len({column.cell(entry, entries) for entry in entries}) > 1]
