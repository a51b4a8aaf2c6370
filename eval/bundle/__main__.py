"""`python -m eval.bundle [CHECKPOINT]`: ship a trained checkpoint in the package, with its model card."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console as RichConsole

from configs.cli import Names, counted, run_app, spelt, usable_folder
from configs.errors import UsageError
from configs.load import load
from configs.pipeline import PipelineConfig
from eval.bundle.bundling import MOST_BYTES, Bundled, bundle
from eval.bundle.card import CARD_FILE
from eval.bundle.provenance import unknowns
from eval.pipeline.steps import last_checkpoint
from eval.policies.checkpoints import read_record
from eval.policies.names import read_policy
from oxygen.weights.source import bundled

app = App(
    name="python -m eval.bundle",
    help="Put a trained checkpoint into the package, as the policy that is called like its model: what is "
    "served of it, what recorded runs say it reached, and a model card made of both. Without a checkpoint, "
    "add results to what is there.",
    version_flags=[],
)


@app.default
def main(
    checkpoint: Path | None = None,
    /,
    *,
    pipeline: Annotated[str | None, Parameter(show_default=False)] = None,
    results: Annotated[Names, Parameter(show_default=False)] = (),
    data: Annotated[Names, Parameter(show_default=False)] = (),
    output: Annotated[Path | None, Parameter(show_default=False)] = None,
) -> None:
    """Bundle, and say what is bundled now.

    Args:
        checkpoint: A folder that training wrote. Default: what is bundled already.
        pipeline: The last checkpoint of this pipeline (`python -m eval.pipeline`), instead of a folder.
        results: Complete runs of that checkpoint, or folders of them; they are added to those of before.
        data: Demonstrations that are not where they were in training.
        output: The folder to put it in. Default: that of its model's name in the package (`tiny`).
    """
    if pipeline is not None:
        if checkpoint is not None:
            raise UsageError(
                f"{spelt('pipeline', pipeline)} and the checkpoint {checkpoint}: give one of them"
            )
        config = load(PipelineConfig, pipeline)
        checkpoint = last_checkpoint(config, Path(config.output_dir))
    if data and checkpoint is None:
        raise UsageError(
            f"{spelt('data', data)} is for a checkpoint that is bundled anew; leave it out, or give one"
        )
    name = "tiny" if checkpoint is None else str(read_policy(str(checkpoint)).model)
    target = usable_folder(output or bundled(name), "--output")
    _tell(bundle(checkpoint, [*map(Path, results)], target, data=[*map(Path, data)]), target)


def _tell(made: Bundled, target: Path) -> None:
    contents, console = made.contents, RichConsole(highlight=False)
    console.print(
        f"[bold]{contents.name}[/]: {contents.parameters:,} parameters after {contents.step} steps, "
        f"{contents.bytes:,} of at most {MOST_BYTES:,} bytes, {counted(len(made.results), 'result')}",
        soft_wrap=True,
    )
    if made.dropped:
        console.print(f"Left out, of the weights before: {counted(made.dropped, 'result')}", soft_wrap=True)
    for unknown in unknowns(read_record(target), contents):
        console.print(f"Not known, and the card says so: {unknown}", soft_wrap=True)
    console.print(f"The card: {target / CARD_FILE}", soft_wrap=True)


if __name__ == "__main__":
    run_app(app)
