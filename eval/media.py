"""`python -m eval.media`: an episode of two runs side by side, on one clock of simulated time."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import Names, Numbers, run_app
from configs.console import visible_text
from configs.errors import UsageError
from configs.paths import usable_file
from eval.records.schema import RunFolder
from eval.report.side_by_side import find_pair
from videos.mp4 import VideoError

app = App(name="python -m eval.media")


@app.default
def main(
    run: Path,
    other: Path,
    /,
    *,
    suites: Annotated[Names, Parameter(name="--suite")] = (),
    task_ids: Numbers = (),
    init_ids: Numbers = (),
    output: Annotated[Path, Parameter(alias="-o")] = Path("side_by_side.mp4"),
) -> None:
    """Show both runs' videos of an episode beside each other.

    The episode is one that only one of the runs solved if there is one, else the one whose lengths differ
    most.

    Args:
        run: Folder of a run with videos.
        other: Folder of another, to show on the right.
        suites: Suites from which the episode is chosen. Default: all.
        task_ids: Tasks from which it is chosen, as `0 3 7`, `0,3,7` or `0-4`. Default: all.
        init_ids: Initial states from which it is chosen. Default: all.
        output: The MP4 file to write.
    """
    pair = find_pair(RunFolder(run), RunFolder(other), suites=suites, task_ids=task_ids, init_ids=init_ids)
    path = usable_file(output, "--output")
    if path.suffix.lower() != ".mp4":
        raise UsageError(f"cannot write {str(path)!r}; --output takes a file whose name ends in .mp4")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        pair.write(path)
    except VideoError as error:
        raise UsageError(str(error)) from None
    sys.stdout.write(f"{visible_text(pair.why)}\n{path}\n")


if __name__ == "__main__":
    run_app(app)
