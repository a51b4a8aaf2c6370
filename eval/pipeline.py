"""`python -m eval.pipeline`: train a policy in stages of collecting and training."""

import dataclasses
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from cyclopts import App, Parameter

from configs.cli import option_arguments, ranges, run_app
from configs.console import TextConsole
from configs.errors import unknown
from configs.load import load, names
from configs.paths import usable_folder
from configs.pipeline import PipelineConfig, PipelineStage
from configs.schema import PolicyConfig
from configs.signals import handle_signals
from oxygen.training.run_folder import CHECKPOINTS, RUN_FILE

Command = tuple[str, ...]
"""A command line from the module on."""

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
        pipeline: A pipeline's name (tiny, tiny_droid, tiny_memory, tiny_moving), or a YAML file.
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
            variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
            console.print(" ".join([*variables, "python", "-m", shlex.join(command)]), markup=False)
            if not dry_run and (code := _run(command, environment)):
                return code
    if not dry_run:
        console.print(f"The policy: {stages[-1].checkpoint}", markup=False)
    return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageCommands:
    """The commands of a stage, with names of stages and datasets replaced by folders.

    Attributes:
        name: The stage's name.
        checkpoint: Folder of its checkpoint; the stage is done when it exists.
        commands: In order: collections, then the training, which is resumed if it was started.
    """

    name: str
    checkpoint: Path
    commands: tuple[Command, ...]


def stage_commands(pipeline: PipelineConfig, folder: Path) -> list[StageCommands]:
    """The commands of all stages.

    Args:
        pipeline: The stages.
        folder: Folder of datasets and trainings.

    Raises:
        UsageError: A stage names an unknown dataset or policy, or a stage that does not precede it.
    """
    stages: list[StageCommands] = []
    datasets: list[str] = []

    def policy(name: str) -> str:
        """The checkpoint of an earlier stage, or the policy of that name."""
        earlier, known = {each.name: str(each.checkpoint) for each in stages}, names(PolicyConfig)
        if name not in earlier and name not in known and not _is_path(name):
            raise unknown("policy or earlier stage", name, [*earlier, *known], remedy="Or give a path.")
        return earlier.get(name, name)

    def dataset(name: str) -> str:
        if _is_path(name):
            return name
        if name not in datasets:
            raise unknown("dataset of this stage or an earlier one", name, datasets, remedy="Or give a path.")
        return str(folder / name)

    for stage in pipeline.stages:
        commands = []
        for step in stage.collect:
            options = step.model_dump(exclude_unset=True)
            options |= {name: policy(options[name]) for name in ("policy", "learner") if name in options}
            options |= {"suite": options.pop("suites", ()), "output": str(folder / step.output)}
            commands.append(("eval.collect", *_options(options)))
            datasets.append(step.output)
        options = stage.train.model_dump(exclude_unset=True)
        options["data"] = [dataset(name) for name in stage.train.data]
        if stage.train.start_from is not None:
            options["start_from"] = policy(stage.train.start_from)
        options["output_dir"] = str(folder / stage.name)
        resume = ("--resume",) if (folder / stage.name / RUN_FILE).is_file() else ()
        commands.append(("eval.train", *_options(options), *resume))
        checkpoint = _checkpoint(folder, stage)
        stages.append(StageCommands(name=stage.name, checkpoint=checkpoint, commands=tuple(commands)))
    return stages


def last_checkpoint(pipeline: PipelineConfig, folder: Path) -> Path:
    """The checkpoint of the last stage of a pipeline in a folder."""
    return _checkpoint(folder, pipeline.stages[-1])


def _checkpoint(folder: Path, stage: PipelineStage) -> Path:
    return folder / stage.name / CHECKPOINTS / f"step_{stage.step:07d}"


def _is_path(name: str) -> bool:
    return os.sep in name or ":" in name


def _options(options: Mapping[str, Any]) -> Command:
    """Options as command-line words, integers as ranges, without those that are off or None."""
    words: list[str] = []
    for option, value in options.items():
        if value is None or value is False:
            continue
        integers = isinstance(value, tuple) and value and all(isinstance(item, int) for item in value)
        words += option_arguments(option, ranges(value) if integers else value)
    return tuple(words)


def _run(command: Command, environment: Mapping[str, str]) -> int:
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
        # As `oxygen-eval` does it: no package of the current folder hides this one.
        arguments = [sys.executable, "-P", "-m", "eval", command[0].removeprefix("eval."), *command[1:]]
        child = subprocess.Popen(arguments, env={**os.environ, **environment}, process_group=0)
        for number in received:
            child.send_signal(number)
        children.append(child)
        code = child.wait()
    if code < 0:
        return 128 - code
    return code or (128 + received[0] if received else 0)


if __name__ == "__main__":
    run_app(app)
