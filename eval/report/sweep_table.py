"""The table of a sweep, one row per cell, in terminals, in Markdown and on its page."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.markup import escape

from configs.assets import badge, badged
from configs.schema import CONDITIONS
from contracts.errors import pluralize
from contracts.motion import format_motion
from eval.metrics.language import HEADLINES
from eval.metrics.noninferiority import Verdict
from eval.report.figures import COLOURS
from eval.report.pages.site import link as link_to
from eval.report.pages.site import whisker
from eval.report.result_tables import TEXT_HEADINGS
from eval.report.table import NO_VALUE, Column, Table, fitting, number, to_terminal
from eval.report.table import to_markdown as markdown

Record = Mapping[str, Any]
"""A finished sweep's `sweep.json`."""
Row = Mapping[str, Any]
"""A cell's row in it."""

_HEADINGS = {
    "text_every": ("text every (queries)", "every"),
    "tokens_per_frame": ("tokens per frame, k", "k"),
    "replan_steps": ("replan (steps)", "replan"),
    "while_waiting": ("while waiting", "waiting"),
}
"""Headings of options on a page and elsewhere; others have their own names."""

_WORDS = {
    ("tokens_per_frame", ""): "k={}",
    ("text_every", ""): "text every {} queries",
    ("text_every", "1"): "text every query",
    ("text_every", "default"): "text as by default",
    ("replan_steps", ""): "replan every {} steps",
    ("replan_steps", "asap"): "replan asap",
    ("replan_steps", "default"): "replan as by default",
}
"""Values of axes in labels; an empty value stands for all others."""


def is_judged(record: Record) -> bool:
    """Whether a cell is compared with another one."""
    return any(row["success"] for row in record["cells"])


def is_identical(row: Row) -> bool:
    """Whether every episode had the same trajectory as in the cell that it is compared with."""
    return bool(row["success"] and row["success"].get("identical"))


def group_by(rows: Sequence[Row], axes: Sequence[str]) -> list[list[Row]]:
    """Group rows by some options, in order of first appearance."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row["options"].get(axis)) for axis in axes), []).append(row)
    return list(groups.values())


def format_value(axis: str, options: Mapping[str, Any]) -> str:
    """The value of an option in a cell; empty if it has no effect in the cell."""
    value, mode = options.get(axis), options["mode"]
    whole = mode not in ("interleaved", "unified")  # texts are decoded to their end, if there are any
    idle = (axis == "tokens_per_frame" and whole) or (axis == "text_every" and mode == "actions")
    if axis == "motion":
        return format_motion(str(value))
    return "" if idle else str("default" if value is None else value).removeprefix("profile:")


def format_condition(options: Mapping[str, Any], varied: Sequence[str]) -> str:
    """The condition of a cell: clock, motion and feedback, as far as they vary."""
    shown = [axis for axis in CONDITIONS if axis in varied] or list(CONDITIONS[:1])
    return ", ".join(filter(None, (format_value(axis, options) for axis in shown)))


def format_cell(options: Mapping[str, Any], varied: Sequence[str], *, with_mode: bool) -> str:
    """The mode, then other axes that vary except conditions, such as `unified, k=1, text every 4 queries`."""
    parts = [str(options["mode"])] if with_mode else []
    for axis in varied:
        text = format_value(axis, options)
        if axis not in (*CONDITIONS, "mode") and text:
            parts.append(_WORDS.get((axis, text)) or _WORDS.get((axis, ""), "{}").format(text))
    return ", ".join(parts)


def format_margins(record: Record) -> str:
    """The declared margins of a sweep."""
    config = record["config"]
    return f"{config['margin']:g} points of success, {config['time_margin']:g} % of time to success"


_SIGNS = {
    Verdict.SUPERIOR.value: ">",
    Verdict.NON_INFERIOR.value: "≥",
    Verdict.INFERIOR.value: "≪",
    Verdict.INCONCLUSIVE.value: "?",
    Verdict.TOO_MANY_ERRORS.value: "err",
}
_IDENTICAL, _WORSE = "=", "<"
_CSS = {
    **dict.fromkeys((Verdict.SUPERIOR, Verdict.NON_INFERIOR, "identical"), "right"),
    Verdict.INFERIOR: "wrong",
    Verdict.INCONCLUSIVE: "partly",
}
"""Classes of verdicts on a page."""
SIGNS_NOTE = (
    "> superior, ≥ non-inferior, ? inconclusive, < worse by an inconclusive amount, ≪ inferior; a "
    "fact rather than a verdict: = every episode had the same trajectory"
)
"""What the signs of verdicts mean."""
NOTE = (
    "solved: episodes. s: mean simulated seconds to success. act, busy: milliseconds that the clock "
    "charges until actions arrive and until the next query can start, mean. a, b: control steps until "
    "actions arrive and until the next query, median. held: control steps in which "
    "the robot is held still. tok/s: tokens decoded per simulated second."
)
MEASURES_NOTE = (
    "rmean: restricted mean time, simulated seconds, where an unsolved episode counts as its limit, with its "
    "verdict. jerk: logarithm of the end effector's dimensionless jerk over solved episodes, less is "
    "smoother. narr. now, mem. now: share of simulated time (%) in which the text delivered last is true "
    "(memory: F1)."
)
TEXTS_NOTE = (
    "texts/s: texts delivered per simulated second. late: mean seconds from request to delivery. narration: "
    "texts that are right on delivery (%). memory: F1 of its items on delivery (%)."
)
JUDGED_NOTE = (
    "succ., time: verdicts on success and time to success compared with mode actions (of that mode itself: "
    f"compared with overlap skip): {SIGNS_NOTE}."
)


def sweep_table(record: Record, *, width: int) -> Group:
    """The cells of a finished sweep: a table, or one for every condition if few differ in it.

    Options and episodes solved have columns in a terminal of any width, characters; other results as far as
    there is room.
    """
    rows, varied, policy = record["cells"], record["varied"], record["provenance"]["policy"]
    mode = "" if "mode" in varied else f", mode {rows[0]['options']['mode']}"
    cells, episodes = pluralize(len(rows), "cell"), pluralize(episodes_of(record), "episode")
    conditions, columns = [axis for axis in CONDITIONS if axis in varied], columns_of(record)
    groups = [rows]
    by_condition = group_by(rows, CONDITIONS)
    if 2 * len(by_condition) <= len(rows):
        groups, columns = by_condition, columns[len(conditions) :]
    columns, room = fitting(columns, rows, width)
    tables = []
    for group in groups:
        condition = "" if group is rows else format_condition(group[0]["options"], varied)
        title = badged(condition, assets_of(record))
        tables.append(to_terminal(Table(columns=columns, groups=[group], title=title)))
        if room < 0:
            tables[-1].width = width - room  # beyond the edge rather than without options
    title = f"{policy}{mode}: {cells}, {episodes} each"
    return Group(f"[italic]{escape(badged(title, assets_of(record)))}", *tables)


def assets_of(record: Record) -> str:
    """The name of a sweep's assets."""
    return str((record["provenance"].get("assets") or {}).get("name", "none"))


def notes_of(record: Record) -> list[str]:
    """What the columns of `sweep_table` mean."""
    has_measures = any(column in (_RESTRICTED, *_MEASURES) for column in columns_of(record))
    return [NOTE, *([MEASURES_NOTE] if has_measures else []), *([JUDGED_NOTE] if is_judged(record) else [])]


def columns_of(record: Record, link: Callable[[Row], str | None] | None = None) -> list[Column]:
    """The columns of a sweep's cells: options that vary, conditions first, then results that a cell has.

    A page gives `link`, the address of a cell's report; it also has verdicts in words and all texts.
    """
    rows, varied, is_page = record["cells"], record["varied"], link is not None
    axes = sorted(varied, key=lambda axis: CONDITIONS.index(axis) if axis in CONDITIONS else len(CONDITIONS))
    columns = [*map(_option, axes or ["mode"]), _SOLVED, _SECONDS]
    if any(row.get("restricted_mean_s") is not None for row in rows):
        columns.append(_RESTRICTED)
    if is_judged(record):
        judged = ("success", "time", "restricted") if is_page else ("success", "time")
        columns += [_verdict(on, in_words=is_page) for on in judged]
    measures = _with_values(_MEASURES, rows)
    columns += [*_with_values([*_CHARGED, *_STEPS, _HELD], rows), *measures]
    if (is_page or not measures) and any(row["tokens_per_simulated_s"] for row in rows):
        columns.append(_TOKENS)
    if link is not None:

        def run(row: Row) -> str:
            address = link(row)
            return row["run"] if address is None else link_to(address, row["run"])

        columns += [*text_columns(record), Column(heading="run", cell=run, align="left", css=lambda _: "n")]
    return columns


def text_columns(record: Record) -> list[Column]:
    """Texts per second, seconds until delivery, and what is right on delivery, in sweeps with texts."""
    rows = record["cells"]
    has_texts = any(row.get("pc_right_on_delivery") or row["staleness_ms"] for row in rows)
    return _with_values(_TEXTS, rows) if has_texts else []


def _with_values(columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    return [column for column in columns if any(column.cell(row) != NO_VALUE for row in rows)]


def _number(
    short: str, heading: str, form: str, *path: str, optional: int | None = None, **look: Any
) -> Column:
    """A column of the number at a path in a cell's row, in the form of `number`."""

    def cell(row: Row) -> str:
        value: Any = row
        for name in path:
            value = (value or {}).get(name)
        return number(value, form, **look)

    return Column(heading=heading, short=short, cell=cell, optional=optional)


_SECONDS = _number("s", "time to success (s)", ".1f", "time_to_success_s", "mean", optional=8)
_CHARGED = [
    _number("act", "actions (ms)", ".0f", "charged_ms", "actions", optional=6),
    _number("busy", "next query (ms)", ".0f", "charged_ms", "busy", optional=5),
]
_STEPS = [_number(name, name, "g", "control_steps", name, "median", optional=7) for name in ("a", "b")]
_HELD = _number("held", "held", ".0f", "pc_held", unit=" %", optional=4)
_MEASURES = [
    *(
        _number(f"{short} now", f"{task.replace('_', ' ')} now (%)", ".0f", "current", task, "pc", optional=3)
        for task, short in TEXT_HEADINGS.items()
    ),
    _number("jerk", "log jerk", ".1f", "motion", "log_dimensionless_jerk", "mean", optional=2),
]
_TOKENS = _number("tok/s", "tokens per s", ".0f", "tokens_per_simulated_s", optional=1)
_TEXTS = [
    _number("texts/s", "texts per s", ".1f", "texts_per_simulated_s"),
    _number("late", "late (s)", ".1f", "staleness_ms", scale=1e-3),
    *(
        _number(task, f"{task.replace('_', ' ')} (%)", ".0f", "pc_right_on_delivery", task)
        for task in HEADLINES
    ),
]


def _option(axis: str) -> Column:
    heading, short = _HEADINGS.get(axis, (axis, axis))
    return Column(
        heading=heading,
        short=short,
        cell=lambda row: format_value(axis, row["options"]),
        align="left",
        choices=True,
        groups=axis in ("clock", "mode", "motion"),
    )


def _solved_html(row: Row) -> Any:
    if row["pc_success"] is None:
        return NO_VALUE
    low, high = row["pc_success_ci95"]
    errors = f"; {row['n_errors']} errors" if row["n_errors"] else ""
    text = f"{row['n_success']} of {row['n_episodes']}, {low:.0f} – {high:.0f} %{errors}"
    return whisker(row["pc_success"], (low, high), text, COLOURS[row["options"]["mode"]])


_SOLVED = Column(
    heading="solved (%)",
    short="solved",
    cell=lambda row: f"{row['n_success']}/{row['n_episodes']}",
    html=_solved_html,
    value=lambda row: row["pc_success"],
)
_RESTRICTED = Column(
    heading="restricted mean (s)",
    short="rmean",
    optional=9,
    cell=lambda row: f"{number(row.get('restricted_mean_s'), '.1f')} {_sign(row, 'restricted')}".rstrip(),
)


def _verdict(on: str, *, in_words: bool) -> Column:
    def word(row: Row) -> str:
        return "" if row.get(on) is None else "identical" if is_identical(row) else row[on]["verdict"]

    def css(row: Row) -> str:
        return _CSS.get(word(row), "")

    heading = {"success": "on success", "time": "on time", "restricted": "on restricted mean"}[on]
    if in_words:
        return Column(heading=heading, cell=word, css=css, align="left", choices=True)
    short = {"success": "succ.", "time": "time"}[on]
    return Column(heading=heading, short=short, cell=lambda row: _sign(row, on))


def _sign(row: Row, on: str) -> str:
    if not row.get(on):
        return ""
    verdict, interval = row[on]["verdict"], row[on].get("ci95")
    if is_identical(row):
        return _IDENTICAL
    if verdict == Verdict.INCONCLUSIVE and interval:
        worse = interval[1] < 0 if on == "success" else interval[0] > 1
        return _WORSE if worse else _SIGNS[verdict]
    return _SIGNS[verdict]


def episodes_of(record: Record) -> int:
    """Episodes of a cell, errors included."""
    return max(row["n_episodes"] + row["n_errors"] for row in record["cells"])


def to_markdown(record: Record) -> str:
    """The table in Markdown, with all conditions and texts."""
    columns = [*columns_of(record), *text_columns(record)]
    short = [dataclasses.replace(each, heading=each.short) for each in columns]
    return markdown(Table(columns=short, groups=[record["cells"]]).marked(badge(assets_of(record))))
