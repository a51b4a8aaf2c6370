"""The cells of a sweep: the runs that its grids ask for, each once."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.cli import spelt
from configs.errors import UsageError
from configs.load import check
from configs.schema import RunConfig
from configs.sweep import AXES, SweepConfig
from eval.policies.unused_options import unused_in
from eval.rollout.clock_choice import find_clock

_MOST_CELLS = 1000


def cells_of(asked: SweepConfig) -> tuple[RunConfig, ...]:
    """A run for every cell, in the order of the grids.

    An option that a cell does not heed is left at its default, so that runs that are equal by construction
    are one, however many cells ask for it.

    Raises:
        UsageError: A cell cannot be run, two clocks are the same, or there is only one cell, or far too many.
    """
    shared = asked.model_dump(exclude={"grids", "chosen_on"})
    found: dict[str, RunConfig] = {}
    for grid in asked.grids:
        for options in grid.combinations():
            cell = check(RunConfig, _heeded({**shared, **options}), source=_say(options))
            found.setdefault(cell.model_dump_json(), cell)
            if len(found) > _MOST_CELLS:
                raise UsageError(f"a sweep of more than {_MOST_CELLS} cells; give fewer values")
    if len(found) == 1:
        axes = ", ".join("--" + axis.replace("_", "-") for axis in AXES)
        raise UsageError(f"a sweep of one cell: give several values of at least one of {axes}")
    cells = tuple(found.values())
    _refuse_equal_clocks(cells)
    return cells


def _heeded(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a cell without those that make no difference in it."""
    mode = options.get("mode", RunConfig.model_fields["mode"].default)
    idle = set(unused_in(mode) - {"language_tasks"})  # these are the same in all cells, as the policy is
    if options["clock"] == "paused":
        idle |= {"while_waiting", "overlap"}
    if options["while_waiting"] == "hold":
        idle |= {"overlap"}
    return {option: value for option, value in options.items() if option not in idle}


def _refuse_equal_clocks(cells: Sequence[RunConfig]) -> None:
    spellings: dict[str, str] = {}
    for clock in dict.fromkeys(cell.clock for cell in cells):
        cell = next(cell for cell in cells if cell.clock == clock)
        described = str(dict(find_clock(cell, ()).describe()))
        same = spellings.setdefault(described, clock)
        if same != clock:
            raise UsageError(f"clocks {same!r} and {clock!r} are the same; give one of them")


def _say(options: Mapping[str, Any]) -> str:
    """A cell as the command line would ask for it."""
    return " ".join(spelt(option, value) for option, value in options.items()) or "the sweep"
