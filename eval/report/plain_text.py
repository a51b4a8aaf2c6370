"""Escapes text of policies, tasks and errors for terminals, pages, Markdown, CSV and LaTeX."""

import re
from collections.abc import Mapping
from typing import Any

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
    if hasattr(value, "__html__"):
        return value  # of a template
    match value:
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
