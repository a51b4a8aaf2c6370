"""`oxygen-eval report RUN…`: recorded runs, or a sweep, as a page with plots and tables."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app
from configs.paths import shown, usable_folder
from contracts.errors import UsageError

app = App(name="oxygen-eval report")


@app.default
def main(
    *runs: Path, output_dir: Annotated[Path | None, Parameter(name=["--output-dir", "-o"])] = None
) -> None:
    """Write a page about one run, about several runs of the same episodes, or about a sweep.

    The folder opens from disk and from any static server.

    Args:
        runs: Folders of runs, or folders that hold runs. The first is the reference of comparisons. A sweep's
            folder alone gives the page of the sweep.
        output_dir: Folder of the page. Default: `report` in the first folder.
    """
    from eval.metrics.sweep_rows import read_sweep
    from eval.records.reader import require_runs
    from eval.records.run_folders import SweepFolder
    from eval.report.pages.run_report import REPORT, write_report  # slow: statistics; --help needs none
    from eval.report.sweep_plots import write_sweep_page

    if not runs:
        raise UsageError("no run given; name the folders of runs, such as runs/RUN_A runs/RUN_B")
    sweep = SweepFolder.at(runs[0])
    is_sweep = len(runs) == 1 and sweep.record_path.is_file()
    default = (sweep.path if is_sweep else runs[0]) / REPORT
    folder = default if output_dir is None else usable_folder(output_dir, "--output-dir")
    if is_sweep:
        page = write_sweep_page(sweep, read_sweep(sweep), folder)
    else:
        page = write_report(require_runs(runs), folder)
    sys.stdout.write(f"{shown(page)}\n")


if __name__ == "__main__":
    run_app(app)
