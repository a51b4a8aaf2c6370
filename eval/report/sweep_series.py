"""What the figures of a sweep show: values of its cells with intervals, and lines over latency."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from eval.report.figures import COLOURS, OTHER_COLOURS
from eval.report.sweep_table import Record, Row, format_cell, format_value, group_by

Value = Callable[[Row], tuple[float, float, float] | None]
"""Maps a row to a value and the bounds of its interval; None if it has none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellLine:
    """Cells that differ in their clock alone; `place` is that of the label."""

    label: str
    colour: str
    place: int
    rows: Sequence[Row]


def latency_lines(record: Record) -> dict[str, list[CellLine]]:
    """Maps each motion to lines: one for every combination of other options that has several latencies.

    Lines of several motions that differ in nothing else have the same label and colour.
    """
    others = [axis for axis in record["varied"] if axis != "clock"]
    groups = [sorted(group, key=latency_of) for group in group_by(record["cells"], others)]
    groups = [group for group in groups if 1 < len(set(map(latency_of, group))) == len(group)]
    modes = dict.fromkeys(group[0]["options"]["mode"] for group in groups)
    labels = [format_cell(group[0]["options"], others, with_mode=len(modes) > 1) for group in groups]
    told_apart = len(modes) == len(set(labels)) > 1
    places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    found: dict[str, list[CellLine]] = {}
    for group, label in zip(groups, labels, strict=True):
        mode = group[0]["options"]["mode"]
        colour = COLOURS[mode] if told_apart else OTHER_COLOURS[places[label] % len(OTHER_COLOURS)]
        motion = format_value("motion", group[0]["options"])
        found.setdefault(motion, []).append(
            CellLine(label=label or mode, colour=colour, place=places[label], rows=group)
        )
    return found


def surface_lines(record: Record) -> dict[str, list[CellLine]]:
    """Maps each motion to lines over b, one for every a: what an episode without texts of its own depends on.

    Of cells in mode `actions` in which every query has the same a and b. They continue the previous chunk
    while waiting, and skip what is late of a new one.
    """
    rule = {"mode": "actions", "while_waiting": "continue", "overlap": "skip"}
    found: dict[str, dict[float, list[Row]]] = {}
    for row in record["cells"]:
        steps = row.get("control_steps") or {}
        constant = len(steps) == 2 and all(each["least"] == each["most"] for each in steps.values())
        if constant and all(row["options"][axis] == value for axis, value in rule.items()):
            motion = format_value("motion", row["options"])
            found.setdefault(motion, {}).setdefault(steps["a"]["median"], []).append(row)
    return {
        motion: [
            CellLine(
                label=f"a = {a:g}",
                colour=OTHER_COLOURS[place % len(OTHER_COLOURS)],
                place=place,
                rows=sorted(rows, key=interval_of),
            )
            for place, (a, rows) in enumerate(sorted(by_a.items()))
        ]
        for motion, by_a in found.items()
    }


def interval_of(row: Row) -> float:
    """b: control steps from a query to the next one, median."""
    return row["control_steps"]["b"]["median"]


def restricted_of(row: Row) -> tuple[float, float, float] | None:
    """The mean time to success in which failures count as the limit, and the ends of its interval."""
    mean = row.get("restricted_mean_s")
    return None if mean is None else (mean, *(row["restricted_mean_ci95"] or (mean, mean)))


def latency_of(row: Row) -> float:
    """Mean milliseconds until the actions that the clock charges."""
    charged: Mapping[str, float] = row["charged_ms"] or {}
    return charged.get("actions", 0.0)


def success_of(row: Row) -> tuple[float, float, float] | None:
    """The success rate and the ends of its interval, percent."""
    return None if row["pc_success"] is None else (row["pc_success"], *row["pc_success_ci95"])


def seconds_of(row: Row) -> tuple[float, float, float] | None:
    """The mean time to success and the ends of its interval."""
    if row["time_to_success_s"] is None:
        return None
    mean = row["time_to_success_s"]["mean"]
    return mean, *(row["time_to_success_ci95"] or (mean, mean))
