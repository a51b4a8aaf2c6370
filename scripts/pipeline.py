"""Trains a bundled policy in stages: `python -m scripts.pipeline tiny`, or the path of a YAML file.

Each stage collects demonstrations (`oxygen-eval collect`) and trains on them (`oxygen-eval train`). Finished
stages are skipped, and the same command resumes.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from configs.cli import option_arguments, ranges
from configs.errors import check
from configs.paths import parse_yaml
from configs.schema import Name, Preset
from configs.training import CollectConfig, TrainConfig
from oxygen.training.run_folder import CHECKPOINTS, RUN_FILE

FOLDER = Path(__file__).with_name("pipelines")


class Collection(CollectConfig):
    """One call of `oxygen-eval collect`; `policy` and `learner` may be the name of an earlier stage."""

    output: Name  # folder of the dataset, to which several collections may add


class Stage(Preset):
    """Collections, followed by a training on datasets of this stage and earlier ones."""

    name: Name  # also the folder of the training
    collect: tuple[Collection, ...] = ()
    train: TrainConfig  # `start_from` may be an earlier stage
    checkpoint: int | None = None  # step of the stage's checkpoint; None for the last one

    def checkpoint_in(self, folder: Path) -> Path:
        """The checkpoint, whose existence means that the stage is done."""
        return folder / self.name / CHECKPOINTS / f"step_{self.checkpoint or self.train.steps:07d}"


class Pipeline(Preset):
    """The stages in which a policy is trained."""

    output_dir: str  # folder of datasets and trainings, each in its own subfolder
    environment: dict[str, str] = Field(default_factory=dict)  # environment variables of the trainings
    defaults: Any = None  # place for YAML anchors; otherwise ignored
    stages: tuple[Stage, ...] = Field(min_length=1)

    @property
    def folder(self) -> Path:
        """The folder of datasets and trainings."""
        return Path(self.output_dir)

    def commands(self, stage: Stage) -> Iterator[tuple[str, ...]]:
        """The commands of a stage; its training is resumed if it was started."""
        checkpoints = {each.name: str(each.checkpoint_in(self.folder)) for each in self.stages}
        for collection in stage.collect:
            options = collection.model_dump(exclude_unset=True)
            options |= {
                name: checkpoints.get(options[name], options[name])
                for name in {"policy", "learner"} & {*options}
            }
            options |= {"suite": options.pop("suites", ()), "output": str(self.folder / collection.output)}
            yield "collect", *_arguments(options)
        options = stage.train.model_dump(exclude_unset=True)
        options["data"] = [str(self.folder / name) for name in stage.train.data]
        if stage.train.start_from is not None:
            options["start_from"] = checkpoints.get(stage.train.start_from, stage.train.start_from)
        output = self.folder / stage.name
        resume = ("--resume",) if (output / RUN_FILE).is_file() else ()
        yield "train", *_arguments(options | {"output_dir": str(output)}), *resume


def read_pipeline(name: str) -> Pipeline:
    """The pipeline of that name or in that file; UsageError if it is not valid."""
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    return check(Pipeline, parse_yaml(path.read_text(encoding="utf-8"), name), source=name)


def _arguments(options: Mapping[str, Any]) -> Iterator[str]:
    for option, value in options.items():
        if value is not None and value is not False:
            integers = isinstance(value, tuple) and value and all(isinstance(item, int) for item in value)
            yield from option_arguments(option, ranges(value) if integers else value)


def main(name: str) -> None:
    """Run the remaining stages; the first command that fails ends the program."""
    pipeline = read_pipeline(name)
    for stage in pipeline.stages:
        if stage.checkpoint_in(pipeline.folder).is_dir():
            continue
        for command, *arguments in pipeline.commands(stage):
            print(f"oxygen-eval {command} {shlex.join(arguments)}", flush=True)  # noqa: T201
            environment = pipeline.environment if command == "train" else {}
            line = [sys.executable, "-P", "-m", "eval", command, *arguments]
            subprocess.run(line, env={**os.environ, **environment}, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
