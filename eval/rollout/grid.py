"""Expands the grids of a sweep into cells, each a run."""

from collections.abc import Mapping
from typing import Any

from configs.cli import format_option
from configs.errors import UsageError
from configs.load import check
from configs.schema import RunConfig
from configs.sweep import AXES, SweepConfig
from eval.policies.unused_options import unused_in
from eval.rollout.clock import find_clock


def cells_of(sweep: SweepConfig) -> tuple[RunConfig, ...]:
    """One run per distinct cell, in the order of the grids.

    Options without effect in a cell keep their default, so that equivalent cells become one run.

    Raises:
        UsageError: A cell is invalid, two clocks are the same, or there is only one cell.
    """
    shared = sweep.model_dump(exclude={"grids"})
    found: dict[str, RunConfig] = {}
    for grid in sweep.grids:
        for options in grid.combinations():
            spelling = (
                " ".join(format_option(option, value) for option, value in options.items()) or "the sweep"
            )
            cell = check(RunConfig, _effective({**shared, **options}), source=spelling)
            found.setdefault(cell.model_dump_json(), cell)
    if len(found) < 2:
        axes = ", ".join("--" + axis.replace("_", "-") for axis in AXES)
        raise UsageError(f"a sweep of one cell: give several values of at least one of {axes}")
    spellings: dict[str, str] = {}
    for clock, cell in {cell.clock: cell for cell in reversed(found.values())}.items():
        described = clock if clock.startswith("replay:") else str(dict(find_clock(cell, ()).describe()))
        if (same := spellings.setdefault(described, clock)) != clock:
            raise UsageError(f"clocks {clock!r} and {same!r} are the same; give one of them")
    return tuple(found.values())


def _effective(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a cell that have an effect in it."""
    fields = RunConfig.model_fields
    mode, clock = (options.get(axis, fields[axis].default) for axis in ("mode", "clock"))
    unused = set(unused_in(mode) - {"language_tasks"})  # the same in all cells, like the policy
    if clock == "paused":
        unused |= {"while_waiting", "overlap"}
    if options.get("while_waiting") == "hold":
        unused |= {"overlap"}
    return {option: value for option, value in options.items() if option not in unused}
