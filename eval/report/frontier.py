"""The frontier of a sweep: the largest text rate at which actions are still non-inferior."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from configs.sweep import CONDITIONS
from eval.metrics.noninferiority import Verdict

Record = Mapping[str, Any]
"""A finished sweep's `sweep.json`."""
Row = Mapping[str, Any]
"""A cell's row in it."""

GOOD_ENOUGH = (Verdict.SUPERIOR.value, Verdict.NON_INFERIOR.value)
"""Verdicts that count as no loss."""


def find_frontier(rows: Sequence[Row], *, chosen: bool = False) -> list[dict[str, Any]]:
    """For every mode and condition the largest text rate that is non-inferior to `actions`.

    Rates are tested from the lowest on, and the first that is not shown to be non-inferior in success and in
    time to success ends the search. The order is fixed beforehand, so the probability of a rate that is
    too large stays that of one test (fixed-sequence procedure; Maurer, Hothorn and Lehmacher 1995).

    Args:
        rows: Of the cells.
        chosen: Whether they were chosen on other episodes, and are in the order of their rates there. If not,
            the cells of a mode must be of several rates and differ in nothing else, or it has no frontier
            here: which schedule is best cannot be learnt on the episodes that it is measured on.

    Returns:
        Per condition and mode: `options` of the condition and `mode`; `tokens_per_s`, tokens per simulated
        second at that rate, 0 if none was shown; `cell`, the options that reach it, their `run`, and whether
        its episodes are `identical` to those of `actions`; `rates`, how many were tried; `next`, the first
        rate that was not shown (`tokens_per_s`) with its verdicts on `success` and `time`, None if all were.
    """
    found = []
    for steps in group_by([row for row in rows if generates_text(row)], [*CONDITIONS, "mode"]):
        rates = [row["options"]["text_every"] for row in steps]
        if all(row["success"] for row in steps) and (chosen or len(set(rates)) == len(rates) > 1):
            found.append(
                _climb(steps if chosen else sorted(steps, key=lambda row: -row["options"]["text_every"]))
            )
    return found


def generates_text(row: Row) -> bool:
    """Whether the cell generates texts at a configured rate."""
    options = row["options"]
    return options["mode"] != "actions" and options["text_every"] is not None


def is_non_inferior(row: Row) -> bool:
    """Whether the cell is non-inferior to mode `actions` in success and in time to success."""
    return bool(row["success"]) and all(row[on]["verdict"] in GOOD_ENOUGH for on in ("success", "time"))


def is_judged(record: Record) -> bool:
    """Whether a cell is compared with another one."""
    return any(row["success"] for row in record["cells"])


def is_identical(row: Row) -> bool:
    """Whether every episode took the same course as in the cell that it is compared with."""
    return bool(row["success"] and row["success"].get("identical"))


def rate_of(row: Row) -> float:
    """Tokens per simulated second."""
    return row["tokens_per_simulated_s"] or 0.0


def group_by(rows: Sequence[Row], axes: Sequence[str]) -> list[list[Row]]:
    """Group rows by some options, in order of first appearance."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row["options"].get(axis)) for axis in axes), []).append(row)
    return list(groups.values())


def _climb(steps: Sequence[Row]) -> dict[str, Any]:
    shown = list(itertools.takewhile(is_non_inferior, steps))
    best = shown[-1] if shown else None
    after = steps[len(shown)] if len(shown) < len(steps) else None
    options = steps[0]["options"]
    return {
        "options": {axis: options.get(axis) for axis in (*CONDITIONS, "mode")},
        "device": steps[0]["device"],
        "tokens_per_s": best["tokens_per_simulated_s"] if best else 0.0,
        "cell": best["options"] if best else None,
        "run": best["run"] if best else None,
        "identical": best is not None and is_identical(best),
        "rates": len(steps),
        "next": after
        and {
            "tokens_per_s": rate_of(after),
            **{on: after[on]["verdict"] for on in ("success", "time")},
        },
    }
