"""`oxygen-eval export RUN… --format FORMAT`: a run's results in the formats of other tools."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app
from configs.paths import usable_file
from contracts.errors import UsageError, unknown
from eval.records.schema import RunFolder

app = App(name="oxygen-eval export")


@app.default
def main(
    *runs: Path,
    to: Annotated[str, Parameter(name="--format")],
    columns: str | None = None,
    output: Path | None = None,
) -> None:
    """Export a complete run for another tool, or several as a LaTeX table, from their records alone.

    Args:
        runs: Folder of a run; with latex, of any number of runs.
        to: lerobot (eval_info.json), vla-eval (aggregate JSON), csv (a line per episode),
            latex (the leaderboard's table of policies and suites) or model-card (Hugging Face's model-index).
        columns: With latex, columns to show instead of the default ones, such as
            "policy,success,95 % interval,n,time to success".
        output: Write here instead of the terminal.
    """
    from eval.report.export import FORMATS, latex  # slow: statistics; --help needs none

    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    if not runs:
        raise UsageError("no run given; name the folder of a run, such as runs/RUN")
    if to != "latex" and (len(runs) > 1 or columns is not None):
        what = f"{len(runs)} runs" if len(runs) > 1 else "--columns"
        raise UsageError(f"{what} with --format {to}; only --format latex takes several runs and --columns")
    if output is not None:
        usable_file(output, "--output")
    folders = [RunFolder(run) for run in runs]
    text = latex(*folders, columns=columns) if to == "latex" else FORMATS[to](*folders)
    if output is None:
        sys.stdout.write(text)
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8", newline="")
        sys.stdout.write(f"{output}\n")


if __name__ == "__main__":
    run_app(app)
