"""Tables: columns over rows, and what they look like in a terminal, on a page, in Markdown, CSV and LaTeX.

A table declares its columns once, and every format shows them. Pages do so by `pages/table.html.j2`.
"""

import csv
import dataclasses
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table as TerminalTable

from configs.console import visible_text
from contracts.clock import PAUSED, Fixed, Profile, Replay

if TYPE_CHECKING:  # the bench imports this module where neither Cyclopts nor pydantic is installed
    from configs.schema import RunConfig
    from eval.records.reader import RunIdentity


_MARKDOWN = re.compile(r"[\\`*<&|~$]|(?<=\])\(|(?<!\w)_|_(?!\w)")
_FORMULA = re.compile(r"\s*[=+@-]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?( ?%)?")
_LATEX = {
    **{each: f"\\{each}" for each in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
}
_RULES = {"left": ":--", "center": ":-:", "right": "--:"}
_MIN_FIRST = 12  # minimum width of a first column that is too long for a terminal, characters
_WIDE_FIRST = 20  # width that it keeps as long as other columns can be left out

ELLIPSIS = "…"
NO_VALUE = "–"


def is_known(values: Sequence[Any]) -> bool:
    """Whether a column has a value in some row."""
    return any(value is not None for value in values)


def differ(values: Sequence[Any]) -> bool:
    """Whether a column tells rows apart."""
    return len(set(values)) > 1


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str  # what it shows
    value: Callable[[Any], Any]  # maps a row to what the column shows of it; None if there is nothing
    form: str | Callable[[Any], str] = ""  # format specification, or a function from the value to its text
    _: dataclasses.KW_ONLY
    unit: str = ""  # unit of its numbers, which stands beside the heading
    key: str = ""  # what it is asked for by; default: `heading`
    # Alignment; left for text, others for numbers, which a page sorts by value.
    align: Literal["left", "center", "right"] = "right"
    short: str = ""  # heading in a terminal, if that abbreviates it
    # Maps its values to whether the table has it.
    when: Callable[[Sequence[Any]], bool] = is_known
    extra: bool = False  # whether it is shown only where it is asked for; CSV has it always
    # Order in which columns are left out of a narrow terminal, 1 first; None if never.
    optional: int | None = None
    legend: str = ""  # what the heading means; columns may share it
    is_markdown: bool = False  # whether heading and text are Markdown already
    # Map a value to the content of its cell on a page, and in LaTeX, if it is more than the text.
    html: Callable[[Any], Any] | None = None
    latex: Callable[[Any], str] | None = None
    css: Callable[[Any], str] | None = None  # maps a value, or None, to the class of its cell on a page
    choices: bool = False  # whether a page offers its values as a filter
    groups: bool = False  # whether a page offers to group rows by it

    @property
    def name(self) -> str:
        """What it is asked for by."""
        return self.key or self.heading

    @property
    def title(self) -> str:
        """The heading with the unit."""
        return f"{self.heading} ({self.unit})" if self.unit else self.heading

    def cell(self, row: Any) -> str:
        """The text of a row's value; a dash if there is none."""
        value = self.value(row)
        if value is None:
            return NO_VALUE
        return format(value, self.form) if isinstance(self.form, str) else self.form(value)

    def of(self, part: Callable[[Any], Any]) -> "Column":
        """The same column over other rows, of which it shows a part."""
        return dataclasses.replace(self, value=lambda row: self.value(part(row)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table, without those of its columns that have nothing to show."""

    columns: Sequence[Column]  # the columns; the first one names the row
    groups: Sequence[Sequence[Any]]  # the rows, in groups that a terminal and LaTeX set apart
    title: str = ""  # the title, in a terminal
    is_bold: Callable[[Any], bool] = lambda _: False  # whether a terminal emphasizes a row

    def __post_init__(self) -> None:
        shown = [each for each in self.columns if not self.rows or each.when([*map(each.value, self.rows)])]
        object.__setattr__(self, "columns", shown)

    @classmethod
    def of_cells(
        cls,
        headings: Iterable[str],
        rows: Iterable[Sequence[str]],
        *,
        left: int = 1,
        is_markdown: bool = False,
    ) -> "Table":
        """A table of texts, of which the first `left` columns are aligned to the left."""
        columns = [
            Column(
                heading,
                lambda row, place=place: row[place],
                align="left" if place < left else "right",
                is_markdown=is_markdown,
            )
            for place, heading in enumerate(headings)
        ]
        return cls(columns=columns, groups=[list(rows)])

    def marked(self, mark: str) -> "Table":
        """The table with a mark, unless that is empty, in the heading of its first column."""
        first, *others = self.columns
        short = f"{first.short or first.heading}\n{mark}" if mark else first.short
        marked = dataclasses.replace(first, heading=f"{first.heading} {mark}".rstrip(), short=short)
        return dataclasses.replace(self, columns=[marked, *others])

    def showing(self, names: Sequence[str]) -> "Table":
        """The table with the columns of these names, in their order; the others are extra."""
        named = [column for name in names for column in self.columns if column.name == name]
        columns = [dataclasses.replace(column, extra=False) for column in named]
        columns += [dataclasses.replace(each, extra=True) for each in self.columns if each.name not in names]
        return dataclasses.replace(self, columns=columns)

    @property
    def shown(self) -> list[Column]:
        """The columns that are shown without asking."""
        return [column for column in self.columns if not column.extra]

    @property
    def rows(self) -> list[Any]:
        """The rows of all groups."""
        return [row for group in self.groups for row in group]

    def legend(self, *, narrow: bool = False) -> str:
        """What the headings mean, by default or in a terminal."""
        named: dict[str, dict[str, None]] = {}
        for column in self.shown:
            heading = column.short.replace("\n", " ") if narrow and column.short else column.heading
            named.setdefault(column.legend, {})[heading] = None
        return " ".join(f"{', '.join(names)}: {text}." for text, names in named.items() if text)

    def records(self) -> list[dict[str, str]]:
        """A mapping from heading to text for every row."""
        return [{column.title: column.cell(row) for column in self.columns} for row in self.rows]

    def fitting(self, width: int) -> "Table":
        """The table without those optional columns for which a terminal has no room."""
        optional = {column.optional for column in self.shown if column.optional is not None}
        table = self
        for last in sorted(optional):
            first = table.layout(table.shown[0])[1]
            if table.width - max(0, first - _WIDE_FIRST) <= width:
                break
            left = [column for column in table.columns if column.optional != last]
            table = dataclasses.replace(table, columns=left)
        return table

    @property
    def width(self) -> int:
        """Its width in a terminal, with rules, characters."""
        return sum(1 + self.layout(column)[1] for column in self.shown) + 1

    def layout(self, column: Column, *, wraps: bool = True) -> tuple[str, int]:
        """The heading of a column in a terminal, in several lines if that saves width, and the width."""
        cells = [cell_len(line) for row in self.rows for line in visible_text(column.cell(row)).split("\n")]
        lines = (column.short or column.title).split("\n")
        if wraps and not column.short:
            width = max([*cells, *(cell_len(word) for word in column.title.split())])
            lines = textwrap.wrap(column.title, width, break_long_words=False, break_on_hyphens=False)
        return "\n".join(lines), max([*cells, *map(cell_len, lines)])


def to_terminal(table: Table, *, ruled: bool = True) -> TerminalTable:
    """The table for a terminal; without rules, headings are dim and columns further apart.

    In a terminal that is too narrow only the first column is, its cells in several lines.
    """
    look: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": 0}
    if not ruled:
        look = {"box": None, "pad_edge": False, "padding": (0, 2, 0, 0), "header_style": "dim"}
    shown = TerminalTable(title=escape(table.title) or None, title_justify="left", **look)
    columns = table.shown
    for number, column in enumerate(columns):
        heading, width = table.layout(column, wraps=ruled)
        shown.add_column(
            escape(heading),
            justify=column.align,
            vertical="bottom",
            min_width=width if number else min(width, _MIN_FIRST),
            no_wrap=number > 0,
            overflow="ellipsis" if number else "fold",
        )
    for group in table.groups:
        for row in group:
            cells = [escape(visible_text(column.cell(row))) for column in columns]
            shown.add_row(*cells, style="bold" if table.is_bold(row) else None)
        shown.add_section()
    return shown


def to_markdown(table: Table) -> str:
    """The table in Markdown."""
    columns = table.shown
    escapes = [str if column.is_markdown else in_markdown for column in columns]
    lines = [[column.title for column in columns]]
    lines += [[column.cell(row) for column in columns] for row in table.rows]
    heads, *rows = ([escape(cell) for escape, cell in zip(escapes, cells, strict=True)] for cells in lines)
    rules = [_RULES[column.align] for column in columns]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """CSV with a line for every record; headings are those of all records, unknown values are empty."""
    text = io.StringIO(newline="")
    headings = dict.fromkeys(heading for record in records for heading in record)
    writer = csv.DictWriter(text, list(headings), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: in_csv(value) for name, value in record.items()} for record in records)
    return text.getvalue()


def to_latex(table: Table) -> str:
    """A `tabular` with the rules of package `booktabs`."""

    def cell(column: Column, row: Any) -> str:
        return in_latex(column.cell(row)) if column.latex is None else column.latex(column.value(row))

    columns = table.shown
    lines = [f"\\begin{{tabular}}{{{''.join(column.align[0] for column in columns)}}}", r"\toprule"]
    lines.append(" & ".join(in_latex(column.title) for column in columns) + r" \\")
    for group in table.groups:
        lines += [r"\midrule", *(" & ".join(cell(each, row) for each in columns) + r" \\" for row in group)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def in_markdown(text: str) -> str:
    """The text on one line, escaped for Markdown and its tables."""
    return _MARKDOWN.sub(r"\\\g<0>", visible_text(" ".join(text.split())))


def in_markdown_code(text: str) -> str:
    """The text on one line, for use between backticks."""
    return visible_text(" ".join(text.split())).replace("`", "'").replace("|", "\\|")


def in_csv(value: Any) -> Any:
    """The value, with an apostrophe before text that a spreadsheet would run as a formula."""
    if not isinstance(value, str):
        return value
    shown = visible_text(value)
    return f"'{shown}" if _FORMULA.match(shown) and not _NUMBER.fullmatch(shown) else shown


def in_latex(text: str) -> str:
    """The text on one line, escaped for LaTeX."""
    return "".join(_LATEX.get(each, each) for each in visible_text(" ".join(text.split())))


def number(value: float | None, form: str) -> str:
    """A number in a table; a dash for None."""
    return NO_VALUE if value is None else format(value, form)


def percentage(value: float | None, decimals: int, unit: str = "") -> str:
    """A percentage in a table, which is neither 0 nor 100 unless it is exactly that; a dash for None."""
    if value is None:
        return NO_VALUE
    if 0 < value < 100:
        value = min(max(value, 10.0**-decimals), 100 - 10.0**-decimals)
    return f"{value:.{decimals}f}{unit}"


_WAITING = {
    "continue": "until new actions arrive, the robot continues with the previous chunk",
    "hold": "until new actions arrive, the robot holds still",
}

_OVERLAP = {
    "skip": "",
    "blend": ", and is averaged with the new chunk where they overlap",
    "rtc": ", towards which the new one is guided",
    "whole": ", and the new one is executed from its first action",
}


def format_clock_of(run: "RunIdentity") -> str:
    """What the clock of a recorded run, other than `paused`, charges, and what the robot does meanwhile."""
    match run.clock:
        case Fixed(actions, busy):
            then = f"after {busy:g} ms" if busy != actions else "then"
            latency = (
                f"actions come {actions:g} ms after the observation, and the next query can start {then}"
            )
        case Profile(name):
            device = f" ({run.clock_device})" if run.clock_device else ""
            latency = f"each query takes as long as profile {name} says{device}"
        case Replay(recorded):
            latency = f"each query takes as long as recorded in {recorded}"
        case _:
            latency = "each query takes as long as on this machine"
    waiting = _WAITING.get(run.while_waiting, run.while_waiting)
    return f"{latency}; {waiting}{_OVERLAP.get(run.overlap, f', {run.overlap}')}"


def clock_label(run: "RunIdentity | RunConfig") -> str:
    """A run's clock and, unless they are the defaults, waiting rule and overlap, as options spell them."""
    rules = () if run.clock == PAUSED else (run.while_waiting, run.overlap)
    return ", ".join([str(run.clock), *(rule for rule in rules if rule not in ("continue", "skip"))])
