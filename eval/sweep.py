"""`oxygen-eval sweep`: one evaluation over a grid of clocks, modes, text rates and schedules."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from configs.cli import Names, brief_app, run_app
from configs.errors import check
from configs.load import names, overlay
from configs.paths import usable_folder
from configs.schema import AXES, OUTPUT, WHAT, ExecutionConfig, GridConfig, PlayConfig, SweepConfig

_CONFIG = (
    f"A YAML file, or the name of a preset ({', '.join(names(SweepConfig))}). Its `grids` are lists of "
    "values; an option that varies replaces the preset's values in every grid."
)

app = brief_app(
    "sweep",
    "Run a policy in every cell of a grid: clocks, modes, text rates, schedules.\n\nAll cells play "
    "every episode in turns. A sweep can be interrupted at any time, and ends with a table, `sweep.json` and "
    "figures. Cells that are equal by construction, such as mode actions at several text rates, are played "
    "once.",
    *("policy", "suite", "task-ids", "num-trials-per-task", "config", "clock", "mode", "text-every"),
    *("tokens-per-frame", "motion", "num-envs", "output-dir", "resume"),
)


@app.default
def sweep(
    *,
    axes: Annotated[GridConfig, Parameter(name="*")] = GridConfig(),  # noqa: B008 - frozen
    options: Annotated[SweepConfig, Parameter(name="*")] = SweepConfig(),  # noqa: B008 - frozen
    config: Annotated[str | None, WHAT, Parameter(help=_CONFIG)] = None,
    play: Annotated[PlayConfig, Parameter(name="*")] = PlayConfig(),  # noqa: B008 - frozen
    output_dir: Annotated[Path, OUTPUT] = Path("runs"),
    log: Annotated[Names, OUTPUT] = (),
    resume: Annotated[bool, OUTPUT, Parameter(show_default=False)] = False,
) -> int:
    """Run every cell, print the table, and write `sweep.json` and figures beside the cells' runs.

    Args:
        output_dir: Parent of the sweep's folder.
        log: Log every cell's run while it goes on, to one or several of tensorboard, wandb (extra [wandb])
            and trackio (extra [trackio]).
        resume: Complete the newest unfinished sweep with these options.
    """
    varied = axes.model_dump(exclude_unset=True)
    flags = options.model_dump(exclude_unset=True)
    output_dir = usable_folder(output_dir, "--output-dir")
    from eval.monitors.console import SweepConsole
    from eval.monitors.loggers import with_log
    from eval.policies.unused_options import refuse_unused_options
    from eval.records.run_folders import find_unfinished_sweep, new_sweep  # slow: statistics
    from eval.rollout.executors.choice import batch_size_for, choose_executor
    from eval.rollout.plan import cells_of
    from eval.rollout.sweep import run_sweep

    settings = overlay(SweepConfig, config, flags)
    shared = {axis: settings.pop(axis) for axis in AXES if axis in settings}  # of grids that lack it
    if shared or varied:
        settings["grids"] = [{**shared, **grid, **varied} for grid in settings.get("grids", [{}])]
    how: Any = {
        "executor": choose_executor(ExecutionConfig(num_envs=play.num_envs)),
        "max_errors": play.max_errors,
        "monitor": with_log(SweepConsole, log),
    }
    if resume:
        return run_sweep(find_unfinished_sweep(output_dir, settings), **how)
    whole = check(
        SweepConfig,
        {"batch_size": batch_size_for(play.num_envs), **settings},
        source="the command line",
    )
    effective = {axis: values for axis, values in varied.items() if axis != "while_waiting"}  # by some cell
    refuse_unused_options({**flags, **effective}, cells_of(whole))  # before anything is written
    return run_sweep(new_sweep(output_dir, whole), **how)


if __name__ == "__main__":
    run_app(app)
