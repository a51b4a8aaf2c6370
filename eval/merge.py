"""`python -m eval.merge`: join runs that each played a shard of the same episodes."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import counted, run_app
from configs.console import TextConsole
from configs.errors import UsageError
from configs.paths import usable_folder
from eval.records.schema import RunFolder

app = App(
    name="python -m eval.merge",
    help="Join runs that each played a share of the same episodes (--shard) into one.\n\nThe joined run has "
    "the records that one run of all episodes would have.",
)


@app.default
def merge_runs(
    *runs: Path, output_dir: Annotated[Path, Parameter(name=["--output-dir", "-o"])] = Path("runs")
) -> None:
    """Join the shards, and write the results of the whole.

    Args:
        runs: Folders of runs; runs in several modes become a run in each.
        output_dir: Where the joined run's folder is made.
    """
    if not runs:
        raise UsageError("name the folders of the runs to join")
    usable_folder(output_dir, "--output-dir")
    from eval.report.merging import merge  # slow: statistics; --help needs none

    console = TextConsole()
    for folder in merge([RunFolder(path.absolute()) for path in runs], output_dir):
        count = counted(folder.read_manifest()["n_planned"], "episode")
        console.print(f"{count} → {folder.path}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    run_app(app)
