"""`python -m eval.export RUN --format FORMAT`: a run's results in the formats of other tools."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app
from configs.errors import unknown
from configs.paths import usable_file
from eval.records.schema import RunFolder

app = App(name="oxygen-eval export")


@app.default
def main(run: Path, /, *, to: Annotated[str, Parameter(name="--format")], output: Path | None = None) -> None:
    """Export a complete run for another tool, from its records alone.

    Args:
        run: Folder of a run.
        to: lerobot (eval_info.json), vla-eval (aggregate JSON), junit (XML for CI), csv (a line per episode),
            latex (a table) or model-card (Hugging Face's model-index).
        output: Write here instead of the terminal.
    """
    from eval.report.export import FORMATS  # slow: statistics; --help needs none

    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    if output is not None:
        usable_file(output, "--output")
    text = FORMATS[to](RunFolder(run))
    if output is None:
        sys.stdout.write(text)
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8", newline="")
        sys.stdout.write(f"{output}\n")


if __name__ == "__main__":
    run_app(app)
