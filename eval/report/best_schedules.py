"""Chooses the schedule of every mode from a finished sweep, to be measured on other episodes."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.cli import spelt
from configs.errors import UsageError
from configs.sweep import AXES, CONDITIONS, GridConfig, SweepConfig
from eval.records.sweep_folders import SweepFolder
from eval.report.frontier import Row, group_by


def measure_best(folder: SweepFolder, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a sweep is asked for that measures the schedules which did best in another one.

    Of the cells that agree in condition, mode and text rate, that is the one that solved most episodes, and
    of equals the one that was fastest in the mean.

    Args:
        folder: The other one.
        given: The options on the command line, by their names in `SweepConfig`. They go before its own.

    Raises:
        UsageError: It is not complete, or the initial states to measure on are not named, or are among those
            that the schedules are chosen on.
    """
    record, asked = folder.read(), folder.asked()
    if record["status"] != "complete":
        raise UsageError(f"{folder.path} is {record['status']}; complete it with --resume before --best-of")
    _refuse_the_same_states(folder, asked, given)
    groups = group_by(record["cells"], [*CONDITIONS, "mode", "text_every"])
    grids = [_grid(max(group, key=_merit)["options"]) for group in groups]
    whole = {**asked.model_dump(), **given}
    return {**whole, "grids": grids, "chosen_on": record["sweep"]}


def _merit(row: Row) -> tuple[float, float]:
    times = row["time_to_success_s"]
    return row["pc_success"] or 0.0, -times["mean"] if times else 0.0


def _grid(options: Mapping[str, Any]) -> dict[str, Any]:
    grid = GridConfig(**{axis: [options[axis]] for axis in AXES if options.get(axis) is not None})
    return grid.model_dump(exclude_none=True)


def _refuse_the_same_states(folder: SweepFolder, asked: SweepConfig, given: Mapping[str, Any]) -> None:
    wanted: Sequence[int] = given.get("init_ids", ())
    if not wanted or not asked.init_ids:
        raise UsageError(
            f"--best-of {folder.path}: schedules are measured on other initial states than they are chosen "
            "on; name both with --init-ids"
        )
    both = sorted(set(wanted) & set(asked.init_ids))
    if both:
        raise UsageError(
            f"{spelt('init_ids', both[:3])}: the schedules of {folder.path.name} were chosen on "
            f"{'these' if len(both) > 1 else 'it'}; measure them on others"
        )
