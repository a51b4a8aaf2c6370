"""Plays or resumes a sweep: the episodes of all cells in turns, as the variants of one evaluation."""

from configs.schema import PlayConfig
from contracts.errors import UsageError
from eval.records.run_folders import Run, SweepFolder, new_run
from eval.rollout.evaluation import MonitorFactory, exit_code, run_evaluation
from eval.rollout.executors.executor import SERIAL, Executor
from eval.rollout.plan import cells_of
from eval.rollout.prepare import prepare


def run_sweep(
    folder: SweepFolder,
    *,
    monitor: MonitorFactory,
    executor: Executor = SERIAL,
    max_errors: int = PlayConfig().max_errors,
) -> int:
    """Run the remaining episodes of a sweep; returns the exit code. The monitor concludes it.

    Raises:
        UsageError: As `run_evaluation` and `recorded_cells`; a new sweep that is refused before its first
            episode leaves nothing.
        KeyboardInterrupt: All records are on disk.
    """
    with folder.locked():
        if folder.begun():
            runs = recorded_cells(folder)
        else:
            runs = tuple(new_run(folder.path, cell) for cell in cells_of(folder.config()))
        try:
            results = run_evaluation(prepare(runs, executor=executor), monitor=monitor, max_errors=max_errors)
        except BaseException:
            folder.drop_unless_begun()
            raise
    return exit_code(results)


def recorded_cells(folder: SweepFolder) -> tuple[Run, ...]:
    """The runs of a sweep that has begun, one per cell.

    Raises:
        UsageError: A run is missing or cannot be read.
    """
    runs, count = folder.runs(), len(cells_of(folder.config()))
    if len(runs) != count:
        begun = folder.begun()
        names = {name for run in begun for name in run.read_manifest().get("variants", ())}
        missing = ", ".join(sorted(names - {run.run_id for run in begun})) or "a run"
        raise UsageError(
            f"{folder.path.name} lacks {missing} of its {count} cells; put it back under that name, or start "
            "another sweep without --resume"
        )
    return runs
