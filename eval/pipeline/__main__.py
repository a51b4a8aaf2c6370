"""`python -m eval.pipeline`: train a policy in stages of collecting and training."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app
from configs.console import TextConsole
from configs.load import load
from configs.paths import usable_folder
from configs.pipeline import PipelineConfig
from configs.signals import handle_signals
from eval.pipeline.steps import stage_commands

app = App(
    name="python -m eval.pipeline",
    help="Train a policy in stages, each of which collects demonstrations (`python -m eval.collect`) and "
    "trains on them (`python -m eval.train`).\n\n"
    "Finished stages are skipped. After an interruption, the same command resumes.",
)


@app.default
def main(
    pipeline: str,
    /,
    *,
    output_dir: Path | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Run the remaining stages of a pipeline.

    Args:
        pipeline: A pipeline's name (tiny, tiny_droid, tiny_moving), or a YAML file.
        output_dir: Folder for datasets and trainings. Default: the pipeline's own.
        dry_run: Print the remaining commands instead of running them.
    """
    config = load(PipelineConfig, pipeline)
    folder = usable_folder(output_dir or Path(config.output_dir), "--output-dir")
    console = TextConsole(soft_wrap=True)
    stages = stage_commands(config, folder)
    for stage in stages:
        if stage.checkpoint.is_dir():
            console.print(f"# {stage.name}: done, {stage.checkpoint}", markup=False)
            continue
        for command in stage.commands:
            environment = config.environment if command[0] == "eval.train" else {}
            console.print(_shown(command, environment), markup=False)
            if not dry_run and (code := _run(command, environment)):
                return code
    if not dry_run:
        console.print(f"The policy: {stages[-1].checkpoint}", markup=False)
    return 0


def _shown(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """A command line for a shell."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join([*variables, "python", "-m", shlex.join(command)])


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command in its own process group, and forward SIGINT and SIGTERM to it.

    Returns:
        Its exit code; 128 plus the number of the signal that ended it.
    """
    received: list[int] = []
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: FrameType | None) -> None:
        received.append(number)
        for child in children:
            child.send_signal(number)

    with handle_signals(forward):
        child = subprocess.Popen(
            [sys.executable, "-m", *command], env={**os.environ, **environment}, process_group=0
        )
        for number in received:
            child.send_signal(number)
        children.append(child)
        code = child.wait()
    if code < 0:
        return 128 - code
    return code or (128 + received[0] if received else 0)


if __name__ == "__main__":
    run_app(app)
