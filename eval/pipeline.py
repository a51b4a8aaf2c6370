"""`oxygen-eval pipeline`: train a policy in stages of collecting and training."""

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
from configs.exits import handle_signals
from configs.load import load, names
from configs.paths import usable_folder
from configs.schema import PolicyConfig
from configs.training import PipelineConfig, PipelineStage
from contracts.errors import unknown
from oxygen.training.run_folder import CHECKPOINTS, RUN_FILE

Command = tuple[str, ...]
"""A command of `oxygen-eval` and its arguments."""

app = App(
    name="oxygen-eval pipeline",
    help="Train a policy in stages, each of which collects demonstrations (`oxygen-eval collect`) and "
    "trains on them (`oxygen-eval train`).\n\n"
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
    folder = output_dir or Path(config.output_dir)
    usable_folder(folder, "--output-dir")
    console = TextConsole(soft_wrap=True)
    commands, checkpoint = stage_commands(config, folder), Path()
    for stage in config.stages:
        checkpoint = checkpoint_of(stage, folder)
        if checkpoint.is_dir():
            console.print(f"# {stage.name}: done, {checkpoint}", markup=False)
            continue
        for command in commands[stage.name]:
            environment = config.environment if command[0] == "train" else {}
            variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
            console.print(" ".join([*variables, "oxygen-eval", shlex.join(command)]), markup=False)
            if not dry_run and (code := _run(command, environment)):
                return code
    if not dry_run:
        console.print(f"The policy: {checkpoint}", markup=False)
    return 0


def checkpoint_of(stage: PipelineStage, folder: Path) -> Path:
    """The checkpoint of a stage of the pipeline in a folder; the stage is done when it exists."""
    return folder / stage.name / CHECKPOINTS / f"step_{stage.step:07d}"


def stage_commands(pipeline: PipelineConfig, folder: Path) -> dict[str, list[Command]]:
    """The commands of all stages, by stage, with names of stages and datasets replaced by folders.

    Each stage has its collections, then the training, which is resumed if it was started.

    Raises:
        UsageError: A stage names an unknown dataset or policy, or a stage that does not precede it.
    """
    stages: dict[str, list[Command]] = {}
    checkpoints: dict[str, str] = {}
    datasets: list[str] = []

    def policy(name: str) -> str:
        """The checkpoint of an earlier stage, or the policy of that name."""
        known = (*checkpoints, *names(PolicyConfig))
        if name not in known and not _is_path(name):
            raise unknown("policy or earlier stage", name, known, remedy="Or give a path.")
        return checkpoints.get(name, name)

    def dataset(name: str) -> str:
        if _is_path(name):
            return name
        if name not in datasets:
            raise unknown("dataset of this stage or an earlier one", name, datasets, remedy="Or give a path.")
        return str(folder / name)

    for stage in pipeline.stages:
        stages[stage.name] = []
        for step in stage.collect:
            options = step.model_dump(exclude_unset=True)
            options |= {name: policy(options[name]) for name in ("policy", "learner") if name in options}
            options |= {"suite": options.pop("suites", ()), "output": str(folder / step.output)}
            stages[stage.name].append(("collect", *_options(options)))
            datasets.append(step.output)
        options = stage.train.model_dump(exclude_unset=True)
        options["data"] = [dataset(name) for name in stage.train.data]
        if stage.train.start_from is not None:
            options["start_from"] = policy(stage.train.start_from)
        options["output_dir"] = str(folder / stage.name)
        resume = ("--resume",) if (folder / stage.name / RUN_FILE).is_file() else ()
        stages[stage.name].append(("train", *_options(options), *resume))
        checkpoints[stage.name] = str(checkpoint_of(stage, folder))
    return stages


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
    """The exit code of a command in its own process group, to which SIGINT and SIGTERM are forwarded."""
    received: list[int] = []
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: FrameType | None) -> None:
        received.append(number)
        for child in children:
            child.send_signal(number)

    with handle_signals(forward):
        # As `oxygen-eval` does it: no package of the current folder hides this one.
        arguments = [sys.executable, "-P", "-m", "eval", *command]
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
