"""Selects the best schedules of each mode from a finished sweep, for evaluation on other episodes."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.cli import format_option
from configs.errors import UsageError
from configs.sweep import AXES, CONDITIONS, GridConfig, SweepConfig
from eval.records.sweep_folders import SweepFolder
from eval.report.frontier import Row, generates_text, group_by, rate_of


def measure_best(folder: SweepFolder, given: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a sweep that measures the best schedules of another one.

    Cells are ordered by success rate, then by mean time to success. For each condition the best cell of mode
    `actions` is selected, and of any other mode the Pareto front of text rate and this order, by text rate,
    and the best cell with the rarest texts.

    Args:
        folder: The other sweep.
        given: The options on the command line, by their names in `SweepConfig`. They override its own.

    Raises:
        UsageError: It is not complete, or `init_ids` are not given, or overlap with those of the other
            sweep.
    """
    record, config = folder.read_finished(), folder.config()
    _refuse_the_same_states(folder, config, given)
    groups = group_by(record["cells"], [*CONDITIONS, "mode"])
    grids = [_grid(row["options"]) for group in groups for row in _best(group)]
    whole = {**config.model_dump(exclude={"batch_size"}), **given}  # that goes with the number of worlds
    return {**whole, "grids": grids, "chosen_on": record["sweep"]}


def _best(rows: Sequence[Row]) -> list[Row]:
    """The cells of a mode to measure, by tokens per second."""
    texts = [row for row in rows if generates_text(row)]
    if not texts:
        return [max(rows, key=_merit)]
    front: list[Row] = []
    for row in sorted(texts, key=lambda row: (rate_of(row), _merit(row)), reverse=True):
        if not front or _merit(row) > _merit(front[-1]):
            front.append(row)
    rarest = max(row["options"]["text_every"] for row in texts)
    best_of_rarest = max((row for row in texts if row["options"]["text_every"] == rarest), key=_merit)
    return sorted(front if best_of_rarest in front else [*front, best_of_rarest], key=rate_of)


def _merit(row: Row) -> tuple[float, float]:
    times = row["time_to_success_s"]
    return row["pc_success"] or 0.0, -times["mean"] if times else 0.0


def _grid(options: Mapping[str, Any]) -> dict[str, Any]:
    grid = GridConfig(**{axis: [options[axis]] for axis in AXES if options.get(axis) is not None})
    return grid.model_dump(exclude_none=True)


def _refuse_the_same_states(folder: SweepFolder, config: SweepConfig, given: Mapping[str, Any]) -> None:
    wanted: Sequence[int] = given.get("init_ids", ())
    if not wanted or not config.init_ids:
        raise UsageError(
            f"--best-of {folder.path}: schedules are measured on other initial states than they are chosen "
            "on; name both with --init-ids"
        )
    both = sorted(set(wanted) & set(config.init_ids))
    if both:
        raise UsageError(
            f"{format_option('init_ids', both[:3])}: the schedules of {folder.path.name} were chosen on "
            f"{'these' if len(both) > 1 else 'it'}; measure them on others"
        )
