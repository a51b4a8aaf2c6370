"""Cells of a sweep: their groups, and labels of the options in which they differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.motion import format_motion
from configs.sweep import CONDITIONS

Record = Mapping[str, Any]
"""A finished sweep's `sweep.json`."""
Row = Mapping[str, Any]
"""A cell's row in it."""

HEADINGS = {
    "clock": "clock",
    "mode": "mode",
    "text_every": "every",
    "tokens_per_frame": "k",
    "replan_steps": "replan",
    "while_waiting": "waiting",
}
"""Column headings of axes; others have their own names."""

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
    """The condition of a cell: clock and motion, as far as they vary."""
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
