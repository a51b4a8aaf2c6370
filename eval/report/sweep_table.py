"""The table of a sweep, one row per cell, in terminals, in Markdown and on its page."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group

from configs.errors import pluralize
from configs.motion import format_motion
from configs.sweep import CONDITIONS
from eval.metrics.language import HEADLINES
from eval.metrics.noninferiority import Verdict
from eval.report.figures import COLOURS
from eval.report.labels import number
from eval.report.pages.site import link as link_to
from eval.report.pages.site import whisker
from eval.report.result_tables import TEXT_HEADINGS
from eval.report.table import Column, Table, to_terminal
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
    """Whether every episode took the same course as in the cell that it is compared with."""
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


def format_cell(options: Mapping[str, Any], varied: Sequence[str], *, with_mode: bool = True) -> str:
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
    "fact rather than a verdict: = every episode took the same course"
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


def sweep_table(record: Record) -> Group:
    """The cells of a finished sweep: a table, or one for every condition if few differ in it."""
    rows, varied, policy = record["cells"], record["varied"], record["provenance"]["policy"]
    mode = "" if "mode" in varied else f", mode {rows[0]['options']['mode']}"
    cells, episodes = pluralize(len(rows), "cell"), pluralize(episodes_of(record), "episode")
    conditions, columns = [axis for axis in CONDITIONS if axis in varied], columns_of(record)
    groups = [rows]
    by_condition = group_by(rows, CONDITIONS)
    if 2 * len(by_condition) <= len(rows):
        groups, columns = by_condition, columns[len(conditions) :]
    tables = []
    for group in groups:
        title = "" if group is rows else format_condition(group[0]["options"], varied)
        tables.append(to_terminal(Table(columns=columns, groups=[group], title=title)))
    return Group(f"[italic]{policy}{mode}: {cells}, {episodes} each", *tables)


def notes_of(record: Record) -> list[str]:
    """What the columns of `sweep_table` mean."""
    has_measures = not {"rmean", *_MEASURES}.isdisjoint(column.short for column in columns_of(record))
    return [NOTE, *([MEASURES_NOTE] if has_measures else []), *([JUDGED_NOTE] if is_judged(record) else [])]


def columns_of(record: Record, link: Callable[[Row], str | None] | None = None) -> list[Column]:
    """The columns of a sweep's cells: options that vary, conditions first, then results that a cell has.

    Args:
        record: The sweep.
        link: The address of a cell's report, for a page, which also has verdicts in words and all texts.
    """
    rows, varied, is_page = record["cells"], record["varied"], link is not None
    conditions = [axis for axis in CONDITIONS if axis in varied]
    others = [axis for axis in varied if axis not in CONDITIONS]
    values = [_numbers(row) for row in rows]
    measures = [short for short in _MEASURES if any(each[short] is not None for each in values)]
    if (is_page or not measures) and any(each["tok/s"] for each in values):
        measures.append("tok/s")
    steps = ["a", "b"] if any(row.get("control_steps") for row in rows) else []
    columns = [*map(_option, [*conditions, *others] or ["mode"]), _SOLVED, _number("s")]
    if any(row.get("restricted_mean_s") is not None for row in rows):
        columns.append(_RESTRICTED)
    if is_judged(record):
        judged = ("success", "time", "restricted") if is_page else ("success", "time")
        columns += [_verdict(on, in_words=is_page) for on in judged]
    columns += [_number(short) for short in ("act", "busy", *steps, "held", *measures)]
    if link is not None:
        columns += [*text_columns(record), _run(link)]
    return columns


def text_columns(record: Record) -> list[Column]:
    """Texts per second, seconds until delivery, and what is right on delivery, in sweeps with texts."""
    values = [_numbers(row) for row in record["cells"]]
    tasks = dict.fromkeys(task for row in record["cells"] for task in row.get("pc_right_on_delivery", {}))
    if not tasks and not any(each["late"] for each in values):
        return []
    shown = [
        short for short in ("texts/s", "late", *tasks) if any(each.get(short) is not None for each in values)
    ]
    return [_number(short) for short in shown]


_NUMBERS = {
    "s": ("time to success (s)", ".1f"),
    "act": ("actions (ms)", ".0f"),
    "busy": ("next query (ms)", ".0f"),
    "a": ("a", "g"),
    "b": ("b", "g"),
    "held": ("held", ".0f"),
    **{f"{short} now": (f"{task.replace('_', ' ')} now (%)", ".0f") for task, short in TEXT_HEADINGS.items()},
    "jerk": ("log jerk", ".1f"),
    "tok/s": ("tokens per s", ".0f"),
    "texts/s": ("texts per s", ".1f"),
    "late": ("late (s)", ".1f"),
    **{task: (f"{task.replace('_', ' ')} (%)", ".0f") for task in HEADLINES},
}
"""Numbers of a cell by their short headings: the heading on a page, and the format."""
_MEASURES = (*(f"{short} now" for short in TEXT_HEADINGS.values()), "jerk")


def _numbers(row: Row) -> dict[str, float | None]:
    """The values of `_NUMBERS`."""
    times, charged, steps = (
        row["time_to_success_s"] or {},
        row["charged_ms"] or {},
        row.get("control_steps") or {},
    )
    current, motion = row.get("current", {}), row.get("motion", {})
    return {
        "s": times.get("mean"),
        "act": charged.get("actions"),
        "busy": charged.get("busy"),
        **{name: steps[name]["median"] if name in steps else None for name in ("a", "b")},
        "held": row["pc_held"],
        **{f"{short} now": current.get(task, {}).get("pc") for task, short in TEXT_HEADINGS.items()},
        "jerk": motion.get("log_dimensionless_jerk", {}).get("mean"),
        "tok/s": row["tokens_per_simulated_s"],
        "texts/s": row.get("texts_per_simulated_s"),
        "late": None if row["staleness_ms"] is None else row["staleness_ms"] / 1e3,
        **row.get("pc_right_on_delivery", {}),
    }


def _number(short: str) -> Column:
    heading, form = _NUMBERS[short]
    unit = " %" if short == "held" else ""
    return Column(heading=heading, short=short, cell=lambda row: number(_numbers(row).get(short), form, unit))


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
        return "–"
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
    cell=lambda row: f"{number(row.get('restricted_mean_s'), '.1f')} {_sign(row, 'restricted')}".rstrip(),
)


def _verdict(on: str, *, in_words: bool) -> Column:
    def word(row: Row) -> str:
        return "" if row.get(on) is None else "identical" if is_identical(row) else row[on]["verdict"]

    heading, short = {
        "success": ("on success", "succ."),
        "time": ("on time", "time"),
        "restricted": ("on restricted mean", ""),
    }[on]
    if not in_words:
        return Column(heading=heading, short=short, cell=lambda row: _sign(row, on))
    return Column(
        heading=heading, cell=word, css=lambda row: _CSS.get(word(row), ""), align="left", choices=True
    )


def _run(link: Callable[[Row], str | None]) -> Column:
    def cell(row: Row) -> str:
        address = link(row)
        return row["run"] if address is None else link_to(address, row["run"])

    return Column(heading="run", cell=cell, align="left", css=lambda _: "n")


def _sign(row: Row, on: str) -> str:
    """The sign of a verdict; empty without one."""
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
    return markdown(Table(columns=short, groups=[record["cells"]]))
