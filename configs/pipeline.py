"""The schema of a pipeline: stages that collect demonstrations and train on them, one after the other."""

import os
import re
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from configs.collection import CollectConfig
from configs.schema import Name, Preset
from configs.training import TrainConfig

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def _expanded(value: Any) -> Any:
    """A value in which `${NAME:-default}` is that environment variable, as in a shell."""
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda found: os.environ.get(found[1]) or found[2], value)


class CollectStep(CollectConfig):
    """One call of `python -m eval.collect`.

    As `policy` or `learner`, the name of an earlier stage stands for its checkpoint.

    Attributes:
        output: The dataset, by the name of its folder in the pipeline's. Several steps may add to one.
    """

    assets: Annotated[str, BeforeValidator(_expanded)] = "auto"
    output: Name


class PipelineStage(Preset):
    """Collections, and one call of `python -m eval.train` on what has been collected so far.

    Attributes:
        name: Of the stage, and of the training's folder in the pipeline's.
        collect: What is collected first.
        train: The training. Its `data` are names of datasets; an earlier stage's name as `start_from` stands
            for that stage's checkpoint. Anything with a slash is a path.
        checkpoint: The step whose checkpoint is the stage's; the last one if None.
    """

    name: Name
    collect: tuple[CollectStep, ...] = ()
    train: TrainConfig
    checkpoint: int | None = Field(default=None, gt=0)

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
    """How a policy is trained in stages.

    Attributes:
        output_dir: The pipeline's folder: datasets and trainings, each in one of its own.
        environment: Environment variables of the trainings.
        defaults: Holds YAML anchors for what several steps share; ignored itself.
        stages: In order.
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
                raise ValueError(f"`stages` has {name!r} twice; give every stage a name of its own")
        return self
