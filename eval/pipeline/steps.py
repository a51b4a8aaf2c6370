"""The commands of a pipeline, with names of stages and datasets replaced by folders."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from configs.cli import option_arguments, ranges
from configs.errors import unknown
from configs.load import names
from configs.pipeline import CollectStep, PipelineConfig, PipelineStage
from configs.schema import PolicyConfig
from oxygen.training.run_folder import CHECKPOINTS, RUN_FILE


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageCommands:
    """The commands of a stage.

    Attributes:
        name: The stage's name.
        checkpoint: Folder of its checkpoint; the stage is done when it exists.
        commands: Command lines from the module on, in order: collections, then the training, which is
            resumed if it was started.
    """

    name: str
    checkpoint: Path
    commands: tuple[tuple[str, ...], ...]


def last_checkpoint(pipeline: PipelineConfig, folder: Path) -> Path:
    """The checkpoint of the last stage of a pipeline in a folder."""
    return _checkpoint(folder, pipeline.stages[-1])


def stage_commands(pipeline: PipelineConfig, folder: Path) -> list[StageCommands]:
    """The commands of all stages.

    Args:
        pipeline: The stages.
        folder: Folder of datasets and trainings.

    Raises:
        UsageError: A stage names an unknown dataset or policy, or a stage that does not precede it.
    """
    commands: list[StageCommands] = []
    datasets: dict[str, None] = {}
    for stage in pipeline.stages:
        stages = {each.name: str(each.checkpoint) for each in commands}
        datasets |= {step.output: None for step in stage.collect}
        collecting = [_collecting(step, stages, folder) for step in stage.collect]
        training = _training(stage, stages, datasets, folder)
        checkpoint = _checkpoint(folder, stage)
        commands.append(
            StageCommands(name=stage.name, checkpoint=checkpoint, commands=(*collecting, training))
        )
    return commands


def _checkpoint(folder: Path, stage: PipelineStage) -> Path:
    return folder / stage.name / CHECKPOINTS / f"step_{stage.step:07d}"


def _collecting(step: CollectStep, stages: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    options = step.model_dump(exclude_unset=True)
    options["suite"] = options.pop("suites", ())
    options["output"] = str(folder / step.output)
    for option in options.keys() & {"policy", "learner"}:
        options[option] = _policy(options[option], stages)
    return ("eval.collect", *_options(options))


def _training(
    stage: PipelineStage, stages: Mapping[str, str], datasets: Iterable[str], folder: Path
) -> tuple[str, ...]:
    options = stage.train.model_dump(exclude_unset=True)
    options["data"] = [_dataset(name, datasets, folder) for name in stage.train.data]
    if stage.train.start_from is not None:
        options["start_from"] = _policy(stage.train.start_from, stages)
    resume = ("--resume",) if (folder / stage.name / RUN_FILE).is_file() else ()
    return ("eval.train", *_options({**options, "output_dir": str(folder / stage.name)}), *resume)


def _policy(name: str, stages: Mapping[str, str]) -> str:
    """The checkpoint of an earlier stage, or the policy of that name."""
    known = names(PolicyConfig)
    if name not in stages and name not in known and not _is_path(name):
        raise unknown("policy or earlier stage", name, [*stages, *known], remedy="Or give a path.")
    return stages.get(name, name)


def _dataset(name: str, datasets: Iterable[str], folder: Path) -> str:
    if _is_path(name):
        return name
    if name not in datasets:
        raise unknown("dataset of this stage or an earlier one", name, datasets, remedy="Or give a path.")
    return str(folder / name)


def _is_path(name: str) -> bool:
    return os.sep in name or ":" in name


def _options(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Options as command-line words, without those that are off or None."""
    given = {option: value for option, value in options.items() if value is not None and value is not False}
    return tuple(word for option, value in given.items() for word in option_arguments(option, _short(value)))


def _short(value: Any) -> Any:
    """Integers as ranges."""
    if isinstance(value, tuple) and value and all(isinstance(item, int) for item in value):
        return ranges(value)
    return value
