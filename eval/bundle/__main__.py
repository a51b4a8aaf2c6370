"""`oxygen-eval bundle [CHECKPOINT]`: put a trained checkpoint into the package, with its model card."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import Names, format_option, run_app
from configs.console import TextConsole
from configs.load import load
from configs.paths import usable_folder
from configs.training import PipelineConfig
from contracts.errors import UsageError

app = App(
    name="oxygen-eval bundle",
    help="Put a trained checkpoint into the package as the policy named after its model, with results of "
    "recorded runs and a model card. Without a checkpoint, add results to a bundled one: tiny, or --output.",
)


@app.default
def main(
    checkpoint: Path | None = None,
    /,
    *,
    pipeline: Annotated[str | None, Parameter(show_default=False)] = None,
    results: Annotated[Names, Parameter(show_default=False)] = (),
    output: Annotated[Path | None, Parameter(show_default=False)] = None,
) -> None:
    """Bundle a checkpoint, or add results to a bundled one.

    Args:
        checkpoint: The folder of a checkpoint. Default: the bundle that --output names.
        pipeline: The last checkpoint of this pipeline (`oxygen-eval pipeline`), instead of a folder.
        results: Complete runs of the checkpoint, or folders of runs; added to the existing results.
        output: The folder of the bundle. Default: that of the model's name in the package (`tiny`).
    """
    from eval.bundle.bundling import CARD_FILE, bundle, unknowns  # JAX, which --help does not need
    from eval.pipeline import checkpoint_of
    from eval.policies.resolved import read_policy
    from oxygen.weights.source import bundled

    if pipeline is not None:
        if checkpoint is not None:
            raise UsageError(
                f"{format_option('pipeline', pipeline)} and the checkpoint {checkpoint}: give one of them"
            )
        config = load(PipelineConfig, pipeline)
        checkpoint = checkpoint_of(config.stages[-1], Path(config.output_dir))
    name = "tiny" if checkpoint is None else str(read_policy(str(checkpoint)).model)
    target = usable_folder(output or bundled(name), "--output")
    bundle(checkpoint or target, [*map(Path, results)], target)
    console = TextConsole()
    for unknown in unknowns(target):
        console.print(f"Not known, and the card says so: {unknown}", soft_wrap=True)
    console.print(f"The card: {target / CARD_FILE}", soft_wrap=True)


if __name__ == "__main__":
    run_app(app)
