"""`python -m eval.sweep`: one evaluation over a grid of clocks, modes, text rates and schedules."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from configs.cli import Names, Numbers, Words, run_app, usable_folder
from configs.errors import UsageError
from configs.load import check
from configs.overlay import overlay
from configs.sweep import AXES, SweepConfig

_AXES = Group("What varies (several values make several cells)", sort_key=1)
_WHAT = Group("What to run", sort_key=2)
_SCALE = Group("How many at once", sort_key=3)
_OUTPUT = Group("Output", sort_key=4)

app = App(
    name="python -m eval.sweep",
    version_flags=[],
    help="Run a policy in every cell of a grid: clocks, modes, text rates, schedules.\n\nAll cells play "
    "every episode in turns. A sweep can be interrupted at any time, and ends with a table, `sweep.json` and "
    "figures. Cells that are equal by construction, such as mode actions at several text rates, are played "
    "once.",
)


@app.default
def sweep(  # noqa: PLR0913 - one parameter per option of the command line
    *,
    clock: Annotated[Words | None, Parameter(group=_AXES)] = None,
    profiles: Annotated[Names | None, Parameter(group=_AXES)] = None,
    motion: Annotated[Words | None, Parameter(group=_AXES)] = None,
    mode: Annotated[Names | None, Parameter(group=_AXES)] = None,
    text_every: Annotated[Numbers | None, Parameter(group=_AXES)] = None,
    tokens_per_frame: Annotated[Numbers | None, Parameter(group=_AXES)] = None,
    replan_steps: Annotated[Names | None, Parameter(group=_AXES)] = None,
    while_waiting: Annotated[Names | None, Parameter(group=_AXES)] = None,
    overlap: Annotated[Names | None, Parameter(group=_AXES)] = None,
    config: Annotated[str | None, Parameter(group=_WHAT)] = None,
    best_of: Annotated[Path | None, Parameter(group=_WHAT)] = None,
    suite: Annotated[Names | None, Parameter(group=_WHAT)] = None,
    task_ids: Annotated[Numbers | None, Parameter(group=_WHAT)] = None,
    num_trials_per_task: Annotated[int | None, Parameter(group=_WHAT)] = None,
    init_ids: Annotated[Numbers | None, Parameter(group=_WHAT)] = None,
    policy: Annotated[str | None, Parameter(group=_WHAT)] = None,
    language_tasks: Annotated[Names | None, Parameter(group=_WHAT)] = None,
    assets: Annotated[str | None, Parameter(group=_WHAT)] = None,
    max_steps: Annotated[int | None, Parameter(group=_WHAT)] = None,
    margin: Annotated[float | None, Parameter(group=_WHAT)] = None,
    time_margin: Annotated[float | None, Parameter(group=_WHAT)] = None,
    num_envs: Annotated[int, Parameter(group=_SCALE)] = 1,
    batch_size: Annotated[int | None, Parameter(group=_SCALE)] = None,
    output_dir: Annotated[Path, Parameter(group=_OUTPUT)] = Path("runs"),
    video: Annotated[str | None, Parameter(group=_OUTPUT)] = None,
    max_errors: Annotated[int, Parameter(group=_OUTPUT)] = 5,
    resume: Annotated[bool, Parameter(group=_OUTPUT, negative="")] = False,
) -> int:
    """Run every cell, print the table, and write `sweep.json` and figures beside the cells' runs.

    Args:
        clock: How simulated time passes: paused, fixed:A,B (milliseconds), profile:NAME, measured.
        profiles: The same as --clock profile:NAME, by name alone.
        motion: none, shuttle:SPEED[,PERIOD] or drift:SPEED (cm/s, s). Default: none.
        mode: actions, isolated, shared, unified (default) or parallel.
        text_every: Request a text of each language task at every N-th query. For no texts use mode actions.
            Default: as in its preset.
        tokens_per_frame: In mode unified, tokens decoded per query for each running text. Default: 5.
        replan_steps: Control steps between two queries, or asap. Default: the suite's.
        while_waiting: continue (default) or hold.
        overlap: skip (default), blend or rtc.
        config: A YAML file, or the name of a preset (latency, modes, frontier). Its `grids` are lists of
            values; an option above replaces the preset's values in every grid.
        best_of: A finished sweep: evaluate its best schedule for each clock and mode on other initial
            states (--init-ids), and report the text rate up to which actions do not suffer.
        suite: Task suites.
        task_ids: Tasks of every suite. Default: all.
        num_trials_per_task: Episodes per task, one per stored initial state. Default: the suite's number.
        init_ids: Initial states, instead of the first ones.
        policy: As in eval.run. Default: tiny.
        language_tasks: Texts to generate beside actions. Default: those the policy was trained on.
        assets: As in eval.run. Default: auto.
        max_steps: Step limit of an episode. Default: the suite's.
        margin: Non-inferiority margin of the success rate against mode actions, percentage points.
            Default: 5.
        time_margin: Non-inferiority margin of the time to success, percent. Default: 10.
        num_envs: Parallel worlds, each in its own process.
        batch_size: Robots per batch of the model. Default: half of num_envs, rounded up.
        output_dir: Parent of the sweep's folder.
        video: Episodes to record: none (default), failures or all.
        max_errors: Stop after this many consecutive errors.
        resume: Complete the newest unfinished sweep with these options.
    """
    clocks = (*(clock or ()), *(f"profile:{name}" for name in profiles or ()))
    axes: dict[str, Any] = {
        "clock": clocks or None,
        "motion": motion,
        "mode": mode,
        "text_every": text_every,
        "tokens_per_frame": tokens_per_frame,
        "replan_steps": replan_steps,
        "while_waiting": while_waiting,
        "overlap": overlap,
    }
    given: dict[str, Any] = {
        "suites": suite,
        "task_ids": task_ids,
        "num_trials_per_task": num_trials_per_task,
        "init_ids": init_ids,
        "policy": policy,
        "language_tasks": language_tasks,
        "assets": assets,
        "max_steps": max_steps,
        "margin": margin,
        "time_margin": time_margin,
        "batch_size": batch_size,
        "video": video,
    }
    usable_folder(output_dir, "--output-dir")
    from eval.policies.unused_options import refuse_unused_options
    from eval.records.sweep_folders import SweepFolder, find_unfinished_sweep, new_sweep  # slow: statistics
    from eval.report.best_schedules import measure_best
    from eval.report.sweeping import run_sweep
    from eval.rollout.executors.choice import batch_size_for, choose_executor
    from eval.rollout.grid import cells_of

    flags = {key: value for key, value in given.items() if value is not None}
    asked = overlay(SweepConfig, config, flags)
    varied = {axis: axes[axis] for axis in AXES if axes[axis] is not None}
    if best_of is not None:
        if config is not None or varied:
            raise UsageError("--best-of takes its cells from a sweep; leave out --config and what varies")
        asked = measure_best(SweepFolder(best_of), flags)
    elif varied:
        asked["grids"] = [{**grid, **varied} for grid in asked.get("grids", [{}])]
    how: Any = {
        "executor": choose_executor(num_envs=num_envs),
        "max_errors": max_errors,
    }
    if resume:
        return run_sweep(find_unfinished_sweep(output_dir, asked), **how)
    whole = check(
        SweepConfig,
        {"video": "none", "batch_size": batch_size_for(num_envs), **asked},
        source="the command line",
    )
    effective = {axis: values for axis, values in varied.items() if axis != "while_waiting"}  # by some cell
    refuse_unused_options({**flags, **effective}, cells_of(whole))  # before anything is written
    return run_sweep(new_sweep(output_dir, whole), **how)


if __name__ == "__main__":
    run_app(app)
