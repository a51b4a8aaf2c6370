"""`python -m eval.compare RUN_A RUN_B`: two runs over the same episodes, side by side."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app
from configs.console import TextConsole
from configs.paths import usable_file
from eval.records.json_files import write_json
from eval.records.schema import RunFolder
from eval.report.comparison import compare, compare_common
from eval.report.comparison_json import to_json
from eval.report.comparison_tables import show
from eval.report.comparison_verdict import judge_all
from eval.report.figures import draw_success_curves, png_path

app = App(name="python -m eval.compare")

_PROVENANCE = ("started", "finished", "config", "weights_sha256", "git", "versions", "hardware")


@app.default
def main(
    run_a: Path,
    run_b: Path,
    /,
    *,
    margin: float | None = None,
    time_margin: float | None = None,
    partial: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[Path | None, Parameter(name="--json")] = None,
    plot: Path | None = None,
) -> None:
    """Compare two runs of the same episodes: success, time to success, actions, latency, texts.

    Args:
        run_a: Folder of a run.
        run_b: Folder of another run with the same protocol, assets and episodes.
        margin: Non-inferiority margin of B's success rate, percentage points. Default: declared by run A.
        time_margin: Non-inferiority margin of B's time to success, percent. Default: likewise.
        partial: Compare only the episodes that both runs have.
        json: Also write the comparison and the runs' provenance to this file.
        plot: Also draw success over time to this PNG file.
    """
    if json is not None:
        usable_file(json, "--json")
    picture = None if plot is None else png_path(usable_file(plot, "--plot"))
    folders = RunFolder(run_a), RunFolder(run_b)
    comparison = compare_common(*folders) if partial else compare(*folders)
    margin = comparison.a.margin if margin is None else margin
    time_margin = comparison.a.time_margin if time_margin is None else time_margin
    judgements = judge_all(comparison, margin, time_margin)
    if json is not None:
        manifests = {name: folder.read_manifest() for name, folder in zip(("a", "b"), folders, strict=True)}
        provenance = {
            name: {part: manifest[part] for part in _PROVENANCE if part in manifest}
            for name, manifest in manifests.items()
        }
        write_json(json, {**to_json(comparison, judgements), "provenance": provenance})
    if picture is not None:
        draw_success_curves(comparison, picture)
    show(comparison, TextConsole(), margin=margin, time_margin=time_margin)


if __name__ == "__main__":
    run_app(app)
