"""`python -m eval.results SWEEP…`: finished sweeps again, as tables, or as a page with their figures."""

import sys
from pathlib import Path

from cyclopts import App

from configs.cli import run_app
from configs.errors import UsageError
from configs.paths import usable_file
from eval.records.sweep_folders import SweepFolder

app = App(name="python -m eval.results")


@app.default
def main(*sweeps: Path, page: Path | None = None) -> None:
    """Show finished sweeps, from their records alone. `eval.report SWEEP` writes the page of one again.

    Args:
        sweeps: Folders of sweeps, or files like their `sweep.json`.
        page: Write a Markdown page here, with figures beside it, instead of printing tables.
    """
    if not sweeps:
        raise UsageError("name a sweep: the folder that eval.sweep left, or its sweep.json")
    if page is not None:
        usable_file(page, "--page")
    folders = [SweepFolder.at(path) for path in sweeps]
    records = [folder.read_finished() for folder in folders]
    from eval.report.results_page import write_page  # slow: statistics; --help needs none
    from eval.report.sweeping import show_sweep

    if page is None:
        for folder, record in zip(folders, records, strict=True):
            show_sweep(folder, record)
        return
    if page.suffix != ".md":
        raise UsageError(f"cannot write {str(page)!r}; --page takes a file whose name ends in .md")
    sys.stdout.write("".join(f"{path}\n" for path in write_page(records, page)))


if __name__ == "__main__":
    run_app(app)
