"""A whole training by its configuration: from datasets to checkpoints, begun anew or gone on with."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.model.params import nested, shapes
from oxygen.robots.tokenizer import SentencePieceTokenizer
from oxygen.robots.transforms import Transform, embodiment
from oxygen.serving.language import LanguageTask
from oxygen.training import checkpoint
from oxygen.training.claim import ASKED, DEMONSTRATIONS, claim, refuse_another
from oxygen.training.initial import initial_params
from oxygen.training.lessons import Lessons
from oxygen.training.losses import Objective
from oxygen.training.optimiser import TrainState, begin
from oxygen.training.recipe import CHECKPOINTS, Recipe
from oxygen.training.samples import Mixture
from oxygen.training.statistics import Statistics, kept_statistics, measure, norms_of
from oxygen.training.trainer import OnCheckpoint, Schedule, Trainer
from oxygen.typing import Params
from oxygen.weights import fetch, load


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """What a trained policy is a function of, beside the demonstrations' own content.

    Attributes:
        model: The model's sizes.
        embodiment: Name of the robot, see `oxygen.robots.transforms`.
        tasks: The language tasks to learn.
        recipe: How it is trained.
        data: What the demonstrations are called, for the record.
        start_from: A checkpoint to begin with; parameters drawn from the recipe's seed if None.
        norm_stats: A checkpoint or a `norm_stats.json` whose statistics of the robot are kept; if None, they
            are measured over the demonstrations.
        wordings: Instructions to the wordings that training gives in their place; others stay as they are.
        asked: The options that led to all this, which its folder keeps; they tell it from no other.
    """

    model: Pi05Config
    embodiment: str
    tasks: tuple[LanguageTask, ...]
    recipe: Recipe
    data: tuple[str, ...]
    start_from: str | None = None
    norm_stats: str | None = None
    wordings: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    asked: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.recipe.texts_only:
            return
        wanted = {"start_from": self.start_from, "norm_stats": self.norm_stats, "tasks": self.tasks}
        missing = [name for name, value in wanted.items() if not value]
        if missing:
            raise UsageError(
                f"texts_only is for a policy that acts already, with texts to learn: give {missing[0]}"
            )

    def described(self) -> dict[str, Any]:
        """All that tells it from other trainings, as JSON has it."""
        content: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        del content[ASKED]
        return content


def train(
    folder: Path,
    training: Training,
    mixture: Mixture,
    tokenizer: SentencePieceTokenizer,
    *,
    schedule: Schedule | None = None,
    on_checkpoint: OnCheckpoint | None = None,
) -> TrainState:
    """Train a policy in `folder`; where a training of the same configuration stopped there, go on with it.

    Whether it was interrupted or not, and how often, makes no difference to the last bit on one machine.

    Args:
        folder: For checkpoints and logs.
        training: What to train and how.
        mixture: The demonstrations.
        tokenizer: The vocabulary; goes along with every checkpoint.
        schedule: When to note and to save.
        on_checkpoint: Called with the step and the folder of every checkpoint.

    Returns:
        The last state.

    Raises:
        UsageError: The parts do not fit together, another training is in `folder`, or this one has diverged;
            then the line names the last good checkpoint.
    """
    described = training.described()
    ours = {**described, DEMONSTRATIONS: mixture.described()}
    refuse_another(folder, ours)
    if not (training.recipe.texts_only or mixture.has_actions):
        raise UsageError("no action is valid in any frame, so there is nothing to learn; see `valid`")
    robot = embodiment(training.embodiment)
    statistics = _statistics(folder / CHECKPOINTS, training, mixture)
    transform = Transform(embodiment=robot, norms=norms_of(statistics))
    lessons = Lessons(
        dataclasses.replace(mixture, wordings=training.wordings),
        model=training.model,
        transform=transform,
        tokenizer=tokenizer,
        tasks=training.tasks,
        recipe=training.recipe,
    )
    objective = Objective(
        model=training.model, recipe=training.recipe, tasks=lessons.tasks, layout=lessons.layout
    )
    served = checkpoint.Served(
        model=training.model,
        embodiment=training.embodiment,
        asset_id=robot.asset_id,
        statistics=statistics,
        tokenizer=tokenizer.serialized,
        tasks=training.tasks,
        record={**described, "frames": len(mixture)},
    )
    trainer = Trainer(folder, objective, lessons, served)
    state = _state(trainer.checkpoints, training)
    claim(folder, {**ours, ASKED: training.asked})  # only now: options that were refused have taken no folder
    return trainer.run(state, schedule or Schedule(), on_checkpoint or _nothing_more)


def _statistics(checkpoints: Path, training: Training, mixture: Mixture) -> Statistics:
    """The robot's statistics. Kept ones are in every checkpoint: where they came from may be gone."""
    if training.norm_stats is None:
        return measure(mixture)
    newest = checkpoint.newest(checkpoints)
    return kept_statistics(newest or fetch(training.norm_stats), embodiment(training.embodiment))


def _nothing_more(step: int, checkpoint: Path) -> Mapping[str, float]:
    del step, checkpoint
    return {}


def _state(checkpoints: Path, training: Training) -> TrainState:
    """The state to go on from: the newest checkpoint's, or the first."""
    newest = checkpoint.newest(checkpoints)
    if newest is None:
        return begin(_first_params(training), training.recipe)
    return checkpoint.restore(newest, _template(training))


def _template(training: Training) -> TrainState:
    """The shapes of a state. The parameters that it began with are not read again: they may be gone."""
    kinds = {path: jax.ShapeDtypeStruct(shape, jnp.float32) for path, shape in shapes(training.model).items()}
    template: TrainState = jax.eval_shape(lambda params: begin(params, training.recipe), nested(kinds))
    return template


def _first_params(training: Training) -> Params:
    if training.start_from is None:
        return initial_params(training.model, training.recipe.seed)
    return load(training.start_from, training.model, dtype="float32")
