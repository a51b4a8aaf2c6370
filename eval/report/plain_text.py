"""Escapes text of policies, tasks and errors for terminals, pages, Markdown, CSV and LaTeX."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from configs.console import visible_text

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


def escape_control(value: Any) -> Any:
    """The value with control characters, such as terminal colours, as visible symbols."""
    match value:
        case Markup():
            return value
        case str():
            return visible_text(value)
        case Mapping():
            return {escape_control(key): escape_control(each) for key, each in value.items()}
        case list() | tuple():
            return [escape_control(each) for each in value]
    return value


def in_markdown(text: str) -> str:
    """The text on one line, escaped for Markdown and its tables."""
    return _MARKDOWN.sub(r"\\\g<0>", escape_control(" ".join(text.split())))


def in_markdown_code(text: str) -> str:
    """The text on one line, for use between backticks."""
    return escape_control(" ".join(text.split())).replace("`", "'").replace("|", "\\|")


def in_csv(value: Any) -> Any:
    """The value, with an apostrophe before text that a spreadsheet would run as a formula."""
    shown = escape_control(value)
    is_formula = isinstance(shown, str) and _FORMULA.match(shown) and not _NUMBER.fullmatch(shown)
    return f"'{shown}" if is_formula else shown


def in_latex(text: str) -> str:
    """The text on one line, escaped for LaTeX."""
    return "".join(_LATEX.get(each, each) for each in escape_control(" ".join(text.split())))


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, align: str = "---") -> str:
    """A table in Markdown; `align` is the rule below every heading but the first."""
    lines = [heads, ["---", *[align] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def latex_table(alignment: str, *groups: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a `tabular` with the rules of package `booktabs`.

    Args:
        alignment: Of the columns, as `tabular` takes it.
        groups: Rows of cells, with a rule before each group. The first group is the heading.
    """
    lines = [f"\\begin{{tabular}}{{{alignment}}}"]
    for number, rows in enumerate(groups):
        lines += [r"\midrule" if number else r"\toprule"]
        lines += [" & ".join(map(in_latex, cells)) + r" \\" for cells in rows]
    return [*lines, r"\bottomrule", r"\end{tabular}"]
