"""How much a robot can say before acting suffers: the largest text rate that costs nothing measurable."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from configs.sweep import CONDITIONS
from eval.metrics.noninferiority import Verdict

Row = Mapping[str, Any]
"""A cell's row of `sweep.json`."""

_GOOD_ENOUGH = (Verdict.SUPERIOR.value, Verdict.NON_INFERIOR.value)


def find_frontier(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For every mode and condition the largest text rate that is non-inferior to `actions`.

    Rates are tested from the rarest texts on, and the first that is not shown to be non-inferior in success
    and in time to success ends the search. The order is fixed beforehand, so that the chance to name a rate
    that is too large stays that of one test (fixed-sequence procedure; Maurer, Hothorn and Lehmacher 1995).

    A mode with several cells at one rate has no frontier here: its schedule has yet to be chosen, on other
    episodes than these.

    Args:
        rows: Of the cells.

    Returns:
        Per condition and mode: `options` of the condition and `mode`; `tokens_per_s`, tokens per simulated
        second at that rate, 0 if none was; `text_every`, one text in so many queries; `rates`, how many were
        tried; `ended_by`, what was not shown at the next rate: `success` or `time`, None if all were.
    """
    return [found for steps in _sequences(rows) if (found := _climb(steps)) is not None]


def speaks(row: Row) -> bool:
    """Whether the cell has texts, at a rate that was asked for."""
    options = row["options"]
    return options["mode"] != "actions" and options["text_every"] is not None


def group_by(rows: Sequence[Row], axes: Sequence[str]) -> list[list[Row]]:
    """The rows that agree in some options, in order of first appearance."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row["options"].get(axis)) for axis in axes), []).append(row)
    return list(groups.values())


def _sequences(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The cells of each mode and condition, rarest texts first."""
    for group in group_by([row for row in rows if speaks(row)], [*CONDITIONS, "mode"]):
        yield sorted(group, key=lambda row: -row["options"]["text_every"])


def _climb(steps: Sequence[Row]) -> dict[str, Any] | None:
    rates = [row["options"]["text_every"] for row in steps]
    if len(set(rates)) < len(rates) or any(row["success"] is None for row in steps):
        return None
    best, ended_by = None, None
    for row in steps:
        ended_by = next((by for by in ("success", "time") if row[by]["verdict"] not in _GOOD_ENOUGH), None)
        if ended_by is not None:
            break
        best = row
    options = steps[0]["options"]
    return {
        "options": {axis: options.get(axis) for axis in (*CONDITIONS, "mode")},
        "device": steps[0]["device"],
        "tokens_per_s": best["tokens_per_simulated_s"] if best else 0.0,
        "text_every": best["options"]["text_every"] if best else None,
        "run": best["run"] if best else None,
        "rates": len(rates),
        "ended_by": ended_by,
    }
