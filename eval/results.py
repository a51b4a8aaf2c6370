"""`oxygen-eval results SWEEP…`: the tables of finished sweeps again."""

from pathlib import Path

from cyclopts import App

from configs.cli import run_app
from contracts.errors import UsageError
from eval.records.run_folders import SweepFolder

app = App(name="oxygen-eval results")


@app.default
def main(*sweeps: Path) -> None:
    """Show finished sweeps, from their records. `oxygen-eval report SWEEP` writes the page of one again.

    Args:
        sweeps: Folders of sweeps, or files like their `sweep.json`.
    """
    if not sweeps:
        raise UsageError("name a sweep: the folder that `oxygen-eval sweep` left, or its sweep.json")
    folders = [SweepFolder.at(path) for path in sweeps]
    from eval.metrics.sweep_rows import read_sweep  # slow: statistics; --help needs none
    from eval.report.sweep import show_sweep

    records = list(map(read_sweep, folders))

    for folder, record in zip(folders, records, strict=True):
        show_sweep(folder, record)


if __name__ == "__main__":
    run_app(app)
