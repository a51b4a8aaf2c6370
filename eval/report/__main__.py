"""`python -m eval.report RUN…`: recorded runs as a page with plots, tables and an episode viewer."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app
from configs.errors import UsageError
from configs.paths import usable_folder

app = App(name="python -m eval.report", version_flags=[])


@app.default
def main(
    *runs: Path, output_dir: Annotated[Path | None, Parameter(name=["--output-dir", "-o"])] = None
) -> None:
    """Write a page about one run, or about several runs of the same episodes.

    The folder opens from disk and from any static server.

    Args:
        runs: Folders of runs, or folders that hold runs. The first is the reference of comparisons.
        output_dir: Folder of the page. Default: `report` in the first run's folder.
    """
    from eval.report.pages.run_report import REPORT, write_report  # slow: statistics; --help needs none

    if not runs:
        raise UsageError("no run given; name the folders of runs, such as runs/RUN_A runs/RUN_B")
    folder = runs[0] / REPORT if output_dir is None else usable_folder(output_dir, "--output-dir")
    sys.stdout.write(f"{write_report(runs, folder)}\n")


if __name__ == "__main__":
    run_app(app)
