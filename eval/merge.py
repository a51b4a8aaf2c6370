"""`oxygen-eval merge`: join runs or sweeps that each played a share of the same episodes."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app
from configs.console import TextConsole
from configs.paths import usable_folder
from contracts.errors import UsageError, pluralize
from eval.records.run_folders import SweepFolder
from eval.records.schema import RunFolder

app = App(
    name="oxygen-eval merge",
    help="Join runs or sweeps that each played a share of the episodes (--shard, or other --init-ids) into "
    "one.\n\nThe result has the records that one run of all episodes would have.",
)


@app.default
def merge_runs(
    *runs: Path, output_dir: Annotated[Path, Parameter(name=["--output-dir", "-o"])] = Path("runs")
) -> None:
    """Join the shares, and write the results of the whole.

    Args:
        runs: Folders of runs, or of sweeps; runs in several modes become a run in each.
        output_dir: Where the joined folder is made.
    """
    if not runs:
        raise UsageError("name the folders of the runs to join")
    usable_folder(output_dir, "--output-dir")
    from eval.report.sweep import conclude, show_sweep  # slow: statistics; --help needs none
    from eval.rollout.merging import merge, merge_sweeps

    sweeps = [sweep for path in runs if (sweep := SweepFolder(path.absolute())).record_path.exists()]
    if sweeps:
        if len(sweeps) < len(runs):
            raise UsageError("some of these folders are sweeps and some are runs; join them apart")
        merged, results = merge_sweeps(sweeps, output_dir)
        show_sweep(merged, conclude(merged, results))
        return
    console = TextConsole()
    for folder in merge([RunFolder(path.absolute()) for path in runs], output_dir):
        count = pluralize(folder.read_manifest()["n_planned"], "episode")
        console.print(f"{count} → {folder.path}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    run_app(app)
