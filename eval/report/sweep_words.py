"""Labels of sweep cells: the options in which they differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.motion import say_motion
from configs.sweep import CONDITIONS
from eval.report.frontier import Record

HEADINGS = {
    "clock": "clock",
    "mode": "mode",
    "text_every": "every",
    "tokens_per_frame": "k",
    "replan_steps": "replan",
    "while_waiting": "waiting",
}
"""Column headings of axes; others have their own names."""


def say_value(axis: str, options: Mapping[str, Any]) -> str:
    """The value of an option in a cell; empty if it has no effect in the cell."""
    value, mode = options.get(axis), options["mode"]
    idle = (axis == "tokens_per_frame" and mode != "unified") or (axis == "text_every" and mode == "actions")
    if axis == "motion":
        return say_motion(str(value))
    return "" if idle else str("default" if value is None else value).removeprefix("profile:")


def say_condition(options: Mapping[str, Any], varied: Sequence[str]) -> str:
    """The condition of a cell: clock and motion, as far as they vary."""
    told = [axis for axis in CONDITIONS if axis in varied] or list(CONDITIONS[:1])
    return ", ".join(filter(None, (say_value(axis, options) for axis in told)))


def say_cell(options: Mapping[str, Any], varied: Sequence[str]) -> str:
    """The mode, then other axes that vary except conditions, such as `unified k=1 every 4`."""
    parts = [str(options["mode"])]
    for axis in varied:
        said = say_value(axis, options)
        if axis in (*CONDITIONS, "mode") or not said:
            continue
        joint = "=" if axis == "tokens_per_frame" else " "
        named = axis in ("tokens_per_frame", "text_every", "replan_steps")
        parts.append(f"{HEADINGS[axis]}{joint}{said}" if named else said)
    return " ".join(parts)


def say_margins(record: Record) -> str:
    """The declared margins of a sweep."""
    asked = record["asked"]
    return f"{asked['margin']:g} points of success, {asked['time_margin']:g} % of time to success"
