"""What the figures of a sweep show: values of its cells with intervals, and lines over latency."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from configs.sweep import CONDITIONS
from eval.report.figures import COLOURS, OTHER_COLOURS
from eval.report.frontier import GOOD_ENOUGH, Record, Row, group_by
from eval.report.sweep_words import format_cell, format_condition

Value = Callable[[Row], tuple[float, float, float] | None]
"""Maps a row to a value and the bounds of its interval; None if it has none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellLine:
    """Cells that differ in their clock alone, by latency."""

    label: str
    colour: str
    rows: Sequence[Row]


def latency_lines(record: Record) -> list[CellLine]:
    """A line for every combination of options but the clock that has several latencies."""
    others = [axis for axis in record["varied"] if axis != "clock"]
    groups = [sorted(group, key=latency_of) for group in group_by(record["cells"], others)]
    groups = [group for group in groups if len(set(map(latency_of, group))) > 1]
    modes = [group[0]["options"]["mode"] for group in groups]
    told_apart = len(set(modes)) == len(groups) > 1
    return [
        CellLine(
            label=_label(group[0], record["varied"], with_mode=len(set(modes)) > 1),
            colour=COLOURS[mode] if told_apart else OTHER_COLOURS[place % len(OTHER_COLOURS)],
            rows=group,
        )
        for place, (group, mode) in enumerate(zip(groups, modes, strict=True))
    ]


def latency_of(row: Row) -> float:
    """Mean milliseconds until the actions that the clock charges."""
    charged: Mapping[str, float] = row["charged_ms"] or {}
    return charged.get("actions", 0.0)


def rate_of(row: Row) -> float:
    """Tokens per simulated second."""
    return row["tokens_per_simulated_s"] or 0.0


def success_of(row: Row) -> tuple[float, float, float] | None:
    """The success rate and the ends of its interval, percent."""
    return None if row["pc_success"] is None else (row["pc_success"], *row["pc_success_ci95"])


def seconds_of(row: Row) -> tuple[float, float, float] | None:
    """The mean time to success and the ends of its interval."""
    if row["time_to_success_s"] is None:
        return None
    mean = row["time_to_success_s"]["mean"]
    return mean, *(row["time_to_success_ci95"] or (mean, mean))


def is_non_inferior(row: Row) -> bool:
    """Whether the cell is non-inferior to mode `actions` in success and in time to success."""
    return bool(row["success"]) and all(row[on]["verdict"] in GOOD_ENOUGH for on in ("success", "time"))


def _label(row: Row, varied: Sequence[str], *, with_mode: bool) -> str:
    axes = [axis for axis in varied if axis != "clock"]
    cell = format_cell(row["options"], axes, with_mode=with_mode)
    where = format_condition(row["options"], axes) if set(axes) & set(CONDITIONS) else ""
    return ", ".join(filter(None, (cell, where))) or row["options"]["mode"]
