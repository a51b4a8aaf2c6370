"""`oxygen-eval leaderboard PATH…`: recorded runs as ranked tables, in Markdown or as a page."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app
from configs.paths import usable_folder
from eval.report.leaderboard import leaderboard_markdown, read_leaderboard, write_leaderboard

app = App(name="oxygen-eval leaderboard")


@app.default
def main(
    *paths: Path,
    published: Annotated[bool, Parameter(negative=())] = False,
    columns: str | None = None,
    output_dir: Annotated[Path | None, Parameter(name=["--output-dir", "-o"])] = None,
) -> None:
    """Rank recorded runs, in one table for each suite, protocol and set of episodes.

    Policies that were played on all suites that papers average also have a table with that average, which
    comes first.

    Args:
        paths: Folders that are searched for runs. Rollouts of a training are included only if its folder is
            given. Default: runs.
        published: Also show success rates that others published, in a block of its own: other machines, other
            assets, never ranked with runs.
        columns: Columns to show instead of the default ones, by heading without the unit, such as
            "rank,policy,success,time to success,run". The page and CSV have all.
        output_dir: Write a page, Markdown, CSV, JSON and LaTeX to this folder. Default: print Markdown.
    """
    if output_dir is not None:
        usable_folder(output_dir, "--output-dir")
    board = read_leaderboard(paths or (Path("runs"),), published=published)
    board = board.showing(columns)
    if output_dir is None:
        sys.stdout.write(leaderboard_markdown(board))
    else:
        sys.stdout.write(f"{write_leaderboard(board, output_dir)}\n")


if __name__ == "__main__":
    run_app(app)
