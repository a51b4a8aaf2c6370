"""The table of a sweep, one row per cell."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.markup import escape

from configs.assets import badged
from configs.schema import CONDITIONS
from contracts.clock import clock_name, parse_clock
from contracts.errors import pluralize
from contracts.mode import BUDGETED
from contracts.motion import format_motion, parse_motion
from eval.metrics.language import HEADLINES
from eval.metrics.noninferiority import Verdict
from eval.metrics.sweep_rows import Cell, SuccessVerdict, SweepRecord, TimeVerdict
from eval.report.figures import COLOURS
from eval.report.pages.site import link as link_to
from eval.report.pages.site import whisker
from eval.report.result_tables import CHARGED, TEXT_HEADINGS
from eval.report.table import Column, Table, to_terminal

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
    ("replan_steps", "1"): "replan at once",
    ("replan_steps", "default"): "replan as by default",
}
"""Values of axes in labels; an empty value stands for all others."""


def is_judged(record: SweepRecord) -> bool:
    """Whether a cell is compared with another one."""
    return any(row.success for row in record.cells)


def group_by(rows: Sequence[Cell], axes: Sequence[str]) -> list[list[Cell]]:
    """Group rows by some options, in order of first appearance."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row.options.get(axis)) for axis in axes), []).append(row)
    return list(groups.values())


def format_value(axis: str, options: Mapping[str, Any]) -> str:
    """The value of an option in a cell; empty if it has no effect in the cell."""
    value, mode = options.get(axis), options["mode"]
    idle = {"text_every": mode == "actions", "tokens_per_frame": mode not in BUDGETED}
    if axis == "motion":
        return format_motion(parse_motion(str(value)))
    if axis == "clock":
        return clock_name(parse_clock(str(value)))
    return "" if idle.get(axis) else str("default" if value is None else value)


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


def format_margins(record: SweepRecord) -> str:
    """The declared margins of a sweep."""
    config = record.config
    return f"{config.margin:g} points of success, {config.time_margin:g} % of time to success"


_IDENTICAL, _WORSE = "identical", "inconclusive, worse"
_SIGNS: Mapping[str, str] = {
    Verdict.SUPERIOR: ">",
    Verdict.NON_INFERIOR: "≥",
    Verdict.INCONCLUSIVE: "?",
    _WORSE: "<",
    Verdict.INFERIOR: "≪",
    Verdict.TOO_MANY_ERRORS: "err",
    _IDENTICAL: "=",
}
_CSS: Mapping[str, str] = {
    **dict.fromkeys((Verdict.SUPERIOR, Verdict.NON_INFERIOR, _IDENTICAL), "right"),
    Verdict.INFERIOR: "wrong",
    **dict.fromkeys((Verdict.INCONCLUSIVE, _WORSE), "partly"),
}
"""Classes of verdicts on a page."""


def sweep_table(record: SweepRecord, *, width: int) -> Group:
    """The cells of a finished sweep, set apart by condition if few differ in each, and a legend.

    Options and episodes solved have columns in a terminal of any width, characters; other results as far as
    there is room.
    """
    rows, varied, policy = record.cells, record.varied, record.provenance.policy
    mode = "" if "mode" in varied else f", mode {rows[0].mode}"
    cells, episodes = pluralize(len(rows), "cell"), pluralize(episodes_of(record), "episode")
    columns, groups, assets = columns_of(record), group_by(rows, CONDITIONS), assets_of(record)
    is_grouped = 2 * len(groups) <= len(rows)
    if is_grouped:
        columns = columns[len([axis for axis in CONDITIONS if axis in varied]) :]
    table = Table(columns=columns, groups=[rows]).fitting(width)
    shown = []
    for group in groups if is_grouped else [rows]:
        title = badged(format_condition(group[0].options, varied), assets) if is_grouped else ""
        part = dataclasses.replace(table, groups=[group], title=title)
        shown.append(to_terminal(part))
        if part.width > width:
            shown[-1].width = part.width  # beyond the edge rather than without options
    title = badged(f"{policy}{mode}: {cells}, {episodes} each", assets)
    return Group(f"[italic]{escape(title)}", *shown, f"[dim]{escape(table.legend(narrow=True))}")


def assets_of(record: SweepRecord) -> str:
    """The name of a sweep's assets."""
    return record.provenance.assets.name


def columns_of(record: SweepRecord, link: Callable[[Cell], str | None] | None = None) -> list[Column]:
    """The columns of a sweep's cells: options that vary, conditions first, then results that a cell has.

    A page gives `link`, the address of a cell's report.
    """

    def run(row: Cell) -> Any:
        address = None if link is None else link(row)
        return row.run if address is None else link_to(address, row.run)

    axes = sorted(
        record.varied, key=lambda axis: CONDITIONS.index(axis) if axis in CONDITIONS else len(CONDITIONS)
    )
    name: Any = {"html": run, "align": "left", "css": lambda _: "n", "extra": link is None}
    name_column = Column("run", lambda row: row, lambda row: row.run, **name)
    return [*map(_option, axes or ["mode"]), *RESULTS, name_column]


def _option(axis: str) -> Column:
    heading, short = _HEADINGS.get(axis, (axis, ""))
    return Column(
        heading,
        lambda row: format_value(axis, row.options),
        short=short,
        align="left",
        choices=True,
        groups=axis in ("clock", "mode", "motion"),
    )


def _verdict(on: str, heading: str, short: str = "", **look: Any) -> Column:
    """A verdict in words on a page, and as a sign elsewhere."""

    def word(row: Cell) -> str | None:
        judged: SuccessVerdict | TimeVerdict | None = getattr(row, on)
        if judged is None or row.success is None:
            return None
        if row.success.identical:
            return _IDENTICAL
        if judged.verdict is Verdict.INCONCLUSIVE and judged.ci95 is not None:
            worse = judged.ci95.high < 0 if judged is row.success else judged.ci95.low > 1
            return _WORSE if worse else judged.verdict
        return judged.verdict

    signs: Any = {"form": _SIGNS.__getitem__, "html": str, "css": lambda word: _CSS.get(word, "")}
    return Column(heading, word, short=short, align="left", choices=True, legend=_VERDICTS, **signs, **look)


def _solved_html(row: Cell) -> Any:
    low, high = row.pc_success_ci95 or (0.0, 100.0)
    errors = f"; {row.n_errors} errors" if row.n_errors else ""
    text = f"{row.n_success} of {row.n_episodes}, {low:.0f} – {high:.0f} %{errors}"
    return whisker(row.pc_success or 0.0, (low, high), text, COLOURS[row.mode])


_VERDICTS = (
    "compared with the control, or with mode actions (of that mode itself: with overlap skip): > superior, "
    "≥ non-inferior, ? inconclusive, < worse by an inconclusive amount, ≪ inferior; = every episode had the "
    "same trajectory, a fact rather than a verdict"
)
_TASKS = {task: task.replace("_", " ") for task in HEADLINES}


RESULTS = [
    Column(
        "solved",
        lambda row: None if row.pc_success is None else row,
        lambda row: f"{row.n_success}/{row.n_episodes}",
        unit="%",
        short="solved",
        html=_solved_html,
        legend="episodes",
    ),
    Column(
        "time to success",
        lambda row: row.time_to_success_s and row.time_to_success_s.mean,
        ".1f",
        short="s",
        unit="s",
        optional=8,
        legend="mean simulated seconds to success",
    ),
    Column(
        "restricted mean",
        lambda row: row.restricted_mean_s,
        ".1f",
        short="rmean",
        unit="s",
        optional=9,
        legend="mean simulated seconds, where an unsolved episode counts as its limit",
    ),
    _verdict("success", "on success", "on\nsucc."),
    _verdict("time", "on time"),
    _verdict("restricted", "on restricted mean", "on\nrmean", optional=9),
    *(
        dataclasses.replace(column, short=short, optional=optional)
        for column, short, optional in zip(CHARGED, ("act", "busy", "", ""), (6, 5, 7, 7), strict=True)
    ),
    Column(
        "idle",
        lambda row: row.pc_idle,
        lambda percent: f"{percent:.0f} %",
        optional=4,
        legend="control steps in which the robot is idle",
    ),
    *(
        Column(
            f"{heading} now",
            lambda row, task=task: row.current[task].pc if task in row.current else None,
            ".0f",
            unit="%",
            short=f"{TEXT_HEADINGS[task]} now",
            optional=3,
            legend="time in which the text delivered last is true (memory: F1)",
        )
        for task, heading in _TASKS.items()
    ),
    Column(
        "log jerk",
        lambda row: (jerk := row.motion.get("log_dimensionless_jerk")) and jerk.mean,
        ".1f",
        short="jerk",
        optional=2,
        legend="logarithm of the end effector's dimensionless jerk in solved episodes, less is smoother",
    ),
    Column(
        "tokens per s", lambda row: row.tokens_per_simulated_s, ".0f", short="tok/s", when=any, optional=1
    ),
    Column(
        "texts per s", lambda row: row.texts_per_simulated_s, ".1f", short="texts/s", when=any, optional=1
    ),
    Column(
        "late",
        lambda row: row.staleness_ms,
        lambda ms: f"{1e-3 * ms:.1f}",
        short="late",
        unit="s",
        optional=1,
        legend="mean simulated seconds from a text's request to its delivery",
    ),
    *(
        Column(
            heading,
            lambda row, task=task: row.pc_right_on_delivery.get(task),
            ".0f",
            unit="%",
            short=task,
            optional=1,
            legend="right on delivery (memory: F1)",
        )
        for task, heading in _TASKS.items()
    ),
]
"""What a cell has beside its options."""


def episodes_of(record: SweepRecord) -> int:
    """Episodes of a cell, errors included."""
    return max(row.n_episodes + row.n_errors for row in record.cells)
