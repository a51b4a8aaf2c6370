"""Tables: columns over rows, their cells, and what they look like in a terminal, Markdown, CSV and LaTeX.

Pages show them by `pages/table.html.j2`.
"""

import csv
import dataclasses
import io
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table as TerminalTable

from configs.console import visible_text

if TYPE_CHECKING:  # the bench imports this module where neither Cyclopts nor pydantic is installed
    from configs.schema import RunConfig
    from eval.records.reader import RunIdentity


_MARKDOWN = re.compile(r"[\\`*\[\]<&|~$]|(?<!\w)_|_(?!\w)")
_FORMULA = re.compile(r"\s*[=+@-]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?( ?%)?")
_LATEX = {
    **{each: f"\\{each}" for each in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "→": r"$\rightarrow$",
}
_RULES = {"left": ":--", "center": ":-:", "right": "--:"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table."""

    heading: str  # what it shows, with its unit
    cell: Callable[[Any], str]  # maps a row to its text
    # Alignment; left for text, others for numbers, which a page sorts by value.
    align: Literal["left", "center", "right"] = "right"
    # Heading in a terminal, with the unit in a second line. Default: `heading`.
    short: str = ""
    # Order in which columns are left out of a narrow terminal, 1 first; None if never.
    optional: int | None = None
    legend: str = ""  # a sentence on what it shows
    is_markdown: bool = False  # whether heading and text are Markdown already
    # Map a row to the content of its cell on a page, and in LaTeX, if it is more than the text.
    html: Callable[[Any], Any] | None = None
    latex: Callable[[Any], str] | None = None
    css: Callable[[Any], str] | None = None  # maps a row to the class of its cell on a page
    # Maps a row to the number that a page sorts by, if its text does not begin with it.
    value: Callable[[Any], float | None] | None = None
    choices: bool = False  # whether a page offers its values as a filter
    groups: bool = False  # whether a page offers to group rows by it
    key: str = ""  # what it is asked for by; default: `heading` without the unit
    extra: bool = False  # whether it is shown only where it is asked for; CSV has it always

    @property
    def name(self) -> str:
        """What it is asked for by."""
        return self.key or self.heading.partition(" (")[0]

    def of(self, part: Callable[[Any], Any]) -> "Column":
        """The same column over other rows, of which it shows a part."""
        cell, html = self.cell, self.html
        of_part = None if html is None else lambda row: html(part(row))
        return dataclasses.replace(self, cell=lambda row: cell(part(row)), html=of_part)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table."""

    columns: Sequence[Column]  # the columns; the first one names the row
    groups: Sequence[Sequence[Any]]  # the rows, in groups that a terminal and LaTeX set apart
    names: Sequence[str] = ()  # names of the groups, in a terminal; none if empty
    title: str = ""  # the title, in a terminal
    is_bold: Callable[[Any], bool] = lambda _: False  # whether a terminal emphasizes a row

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
                heading=heading,
                cell=lambda row, place=place: row[place],
                align="left" if place < left else "right",
                is_markdown=is_markdown,
            )
            for place, heading in enumerate(headings)
        ]
        return cls(columns=columns, groups=[list(rows)])

    def marked(self, mark: str) -> "Table":
        """The table with a mark, unless that is empty, in the heading of its first column."""
        first, *others = self.columns
        heading, short = f"{first.heading} {mark}", f"{first.short or first.heading}\n{mark}"
        marked = dataclasses.replace(first, heading=heading.rstrip(), short=short.rstrip())
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

    @property
    def legend(self) -> str:
        """What the columns show, in sentences."""
        return " ".join(dict.fromkeys(column.legend for column in self.columns if column.legend))

    def records(self) -> list[dict[str, str]]:
        """A mapping from heading to text for every row."""
        return [{column.heading: column.cell(row) for column in self.columns} for row in self.rows]


_MIN_FIRST = 12  # minimum width of a first column that is too long for a terminal, characters


def fitting(
    columns: Sequence[Column], rows: Sequence[Any], width: int, *, beside: int = 0
) -> tuple[list[Column], int]:
    """The columns without those optional ones for which a ruled table of these rows has no room.

    Also returns the characters that they leave of `width`, which should be `beside` at least; negative if the
    others do not fit either.
    """

    def room(columns: Sequence[Column]) -> int:
        return width - 1 - sum(_width(column, rows) + 1 for column in columns)

    shown = list(columns)
    for last in sorted({column.optional for column in columns if column.optional is not None}):
        if room(shown) >= beside:
            break
        shown = [column for column in shown if column.optional != last]
    return shown, room(shown)


def _width(column: Column, rows: Sequence[Any]) -> int:
    texts = [column.short or column.heading, *(visible_text(column.cell(row)) for row in rows)]
    return max(cell_len(line) for text in texts for line in text.split("\n"))


def to_terminal(table: Table, *, ruled: bool = True) -> TerminalTable:
    """The table for a terminal; without rules, headings are dim and columns further apart.

    In a terminal that is too narrow only the first column is, its cells in several lines.
    """
    look: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": 0}
    if not ruled:
        look = {"box": None, "pad_edge": False, "padding": (0, 2, 0, 0), "header_style": "dim"}
    shown = TerminalTable(title=escape(table.title) or None, title_justify="left", **look)
    for number, column in enumerate(table.columns):
        heading, width = escape(column.short or column.heading), _width(column, table.rows)
        shown.add_column(
            heading,
            justify=column.align,
            vertical="bottom",
            min_width=width if number else min(width, _MIN_FIRST),
            no_wrap=number > 0,
            overflow="ellipsis" if number else "fold",
        )
    for name, group in itertools.zip_longest(table.names, table.groups):
        if name:
            shown.add_row(escape(visible_text(name)), style="bold")
        for row in group:
            cells = [escape(visible_text(column.cell(row))) for column in table.columns]
            shown.add_row(*cells, style="bold" if table.is_bold(row) else None)
        shown.add_section()
    return shown


def to_markdown(table: Table) -> str:
    """The table in Markdown."""
    columns = table.shown
    escapes = [str if column.is_markdown else in_markdown for column in columns]
    lines = [[column.heading for column in columns]]
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
        return in_latex(column.cell(row)) if column.latex is None else column.latex(row)

    columns = table.shown
    lines = [f"\\begin{{tabular}}{{{''.join(column.align[0] for column in columns)}}}", r"\toprule"]
    lines.append(" & ".join(in_latex(column.heading) for column in columns) + r" \\")
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


ELLIPSIS = "…"
NO_VALUE = "–"


def number(value: float | None, form: str, unit: str = "", *, scale: float = 1) -> str:
    """A number in a table, scaled, with its unit; a dash for None."""
    return NO_VALUE if value is None else f"{scale * value:{form}}{unit}"


def percentage(value: float | None, decimals: int, unit: str = "") -> str:
    """A percentage in a table, which is neither 0 nor 100 unless it is exactly that; a dash for None."""
    if value is not None and 0 < value < 100:
        value = min(max(value, 10.0**-decimals), 100 - 10.0**-decimals)
    return number(value, f".{decimals}f", unit)


def shortened(labels: Sequence[str], width: int) -> list[str]:
    """The labels in at most `width` characters each; as they are where all of them fit.

    Words that all of them begin or end with are left out first, as few as possible. Longer ones lose words in
    the middle, so that they still differ from other labels.
    """
    if max(map(len, labels), default=0) <= width:
        return list(labels)
    heads = sorted(range(width), key=lambda head: abs(2 * head - width))  # a gap near the middle comes first
    candidates = [
        [
            cut
            for whole in (True, False)
            for head in heads
            if (cut := _cut(label, width, head, whole_words=whole)) != ELLIPSIS  # of one long word
        ]
        for label in _without_shared_words(labels, width)
    ]
    uses = Counter(candidate for each in candidates for candidate in dict.fromkeys(each))
    return [min(each, key=lambda candidate: uses[candidate]) for each in candidates]


def _without_shared_words(labels: Sequence[str], width: int) -> list[str]:
    def shared(words: Sequence[Sequence[str]]) -> int:
        """Length of the common prefix in words, if each label has at least one more; 0 for one label."""
        count = 0
        while len(words) > 1 and all(len(w) > count + 1 and w[count] == words[0][count] for w in words):
            count += 1
        return count

    words = [label.split() for label in labels]
    before = shared(words)
    after = shared([each[before:][::-1] for each in words])

    def without(first: int, last: int) -> list[str]:
        head, tail = ELLIPSIS if first else "", ELLIPSIS if last else ""
        return [f"{head}{' '.join(each[first : len(each) - last])}{tail}" for each in words]

    ways = (without(first, last) for first in range(before + 1) for last in range(after + 1))
    narrow = (each for each in ways if max(map(len, each), default=0) <= width)
    return next(narrow, without(before, after))  # the beginning is what people read


def _cut(label: str, width: int, head: int, *, whole_words: bool) -> str:
    """The label without its middle: at most `head` characters before the gap, the rest after it."""
    if len(label) <= width:
        return label
    if not whole_words:
        return f"{label[:head]}{ELLIPSIS}{label[len(label) - (width - head - len(ELLIPSIS)) :]}"
    first = label[: head + 1].rpartition(" ")[0]
    last = label[len(label) - (width - len(first) - len(ELLIPSIS)) - 1 :].partition(" ")[2]
    return f"{first}{ELLIPSIS}{last}"


PAUSED = "paused"
MEASURED = "measured"

_WAITING = {
    "continue": "until new actions arrive, the robot continues with the previous chunk",
    "hold": "until new actions arrive, the robot holds still",
}

_OVERLAP = {
    "skip": "",
    "blend": ", and is averaged with the new chunk where they overlap",
    "rtc": ", towards which the new one is guided",
}


def format_clock(clock: str, while_waiting: str, *, overlap: str = "skip", device: str | None = None) -> str:
    """The latency that a clock charges, and what the robot does in the meantime.

    All as the options take them, the clock other than `paused`; the device is that of its profile, if known.
    """
    kind, _, given = clock.partition(":")
    if kind == "fixed":
        actions, _, busy = given.partition(",")
        then = f"the next query can start after {busy} ms" if busy else "the next query can start then"
        latency = f"actions come {actions} ms after the observation, and {then}"
    else:
        times = {
            "profile": f"profile {given} says" + (f" ({device})" if device else ""),
            "measured": "on this machine",
            "replay": f"recorded in {given}",
        }
        latency = f"each query takes as long as {times.get(kind, clock)}"
    meanwhile = _WAITING.get(while_waiting, while_waiting) + _OVERLAP.get(overlap, f", {overlap}")
    return f"{latency}; {meanwhile}"


def format_clock_of(run: "RunIdentity") -> str:
    """The clock of a recorded run in words; see `format_clock`."""
    return format_clock(run.clock, run.while_waiting, overlap=run.overlap, device=run.clock_device)


def clock_label(run: "RunIdentity | RunConfig") -> str:
    """A run's clock, waiting rule and, if it is not `skip`, overlap as options spell them, in one cell."""
    if run.clock == PAUSED:
        return run.clock
    return ", ".join([run.clock, run.while_waiting, *([run.overlap] if run.overlap != "skip" else [])])
