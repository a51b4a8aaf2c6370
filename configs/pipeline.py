"""The schema of a pipeline: stages that collect demonstrations and train on them."""

import os
import re
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from configs.collection import CollectConfig
from configs.schema import Name, Preset
from configs.training import TrainConfig

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def _expanded(value: Any) -> Any:
    """Replaces `${NAME:-default}` by the environment variable, as a shell does."""
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda found: os.environ.get(found[1]) or found[2], value)


class CollectStep(CollectConfig):
    """One call of `python -m eval.collect`.

    `policy` and `learner` may be the name of an earlier stage, for its checkpoint.

    Attributes:
        output: Name of the dataset's folder. Several steps may add to one dataset.
    """

    assets: Annotated[str, BeforeValidator(_expanded)] = "auto"
    output: Name


class PipelineStage(Preset):
    """Collections, followed by one call of `python -m eval.train`.

    Attributes:
        name: Name of the stage, and of the training's folder.
        collect: The collections.
        train: The training. Its `data` are names of datasets; `start_from` may be an earlier stage, for its
            checkpoint. Names with a slash are paths.
        checkpoint: Step of the stage's checkpoint; None for the last one.
    """

    name: Name
    collect: tuple[CollectStep, ...] = ()
    train: TrainConfig
    checkpoint: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _has_command_line_options(self) -> Self:
        for name in ("actions_reach_prefix", "texts_reach_prefix"):
            if name in self.train.model_fields_set:
                raise ValueError(
                    f"`{name}` is not for pipelines, which run commands: it has no option; leave it out, and "
                    "train that stage with eval.train --config"
                )
        return self

    @property
    def step(self) -> int:
        """The step of the stage's checkpoint."""
        return self.train.steps if self.checkpoint is None else self.checkpoint

    @model_validator(mode="after")
    def _saves_its_checkpoint(self) -> Self:
        last = self.train.steps
        if self.step != last and (self.step > last or self.step % self.train.save_every):
            raise ValueError(
                f"`checkpoint` is {self.step}, but the training has {last} steps and saves every "
                f"{self.train.save_every}"
            )
        return self


class PipelineConfig(Preset):
    """The stages in which a policy is trained.

    Attributes:
        output_dir: Folder of datasets and trainings, each in its own subfolder.
        environment: Environment variables of the trainings.
        defaults: Place for YAML anchors; otherwise ignored.
        stages: The stages, in order.
    """

    output_dir: str
    environment: dict[str, str] = Field(default_factory=dict)
    defaults: Any = None
    stages: tuple[PipelineStage, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_each_stage_once(self) -> Self:
        names = [stage.name for stage in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"`stages` has {name!r} twice; give each stage its own name")
        return self
