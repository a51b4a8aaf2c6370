"""A training run from its configuration, started or resumed."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from configs.errors import UsageError
from oxygen.model.adapter import initial_arrays
from oxygen.model.adapter import shapes as adapter_shapes
from oxygen.model.config import Pi05Config
from oxygen.model.params import nested, shapes
from oxygen.model.pi05 import Weights, prepare
from oxygen.robots.tokenizer import SentencePieceTokenizer
from oxygen.robots.transforms import Transform, embodiment
from oxygen.serving.language import LanguageTask
from oxygen.training import checkpoint
from oxygen.training.batches import TrainingBatches
from oxygen.training.initialisation import initial_params
from oxygen.training.losses import Objective
from oxygen.training.optimiser import TrainState, init_state
from oxygen.training.recipe import CHECKPOINTS, Recipe
from oxygen.training.run_folder import DEMONSTRATIONS, OPTIONS, check_same_run, locked_run, write_run_file
from oxygen.training.samples import Mixture
from oxygen.training.statistics import Statistics, measure, norms_of, read_statistics
from oxygen.training.trainer import OnCheckpoint, Schedule, Trainer
from oxygen.typing import Params
from oxygen.weights import fetch, load


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything that determines a trained policy, except for the demonstrations themselves.

    Attributes:
        model: The model's sizes.
        embodiment: Name of the robot, see `oxygen.robots.transforms`.
        tasks: The language tasks to train.
        recipe: Hyperparameters.
        data: Names of the demonstrations, for the record.
        start_from: Checkpoint with the initial parameters; random ones from the recipe's seed if None.
        norm_stats: A checkpoint or a `norm_stats.json` with the robot's statistics; measured over the
            demonstrations if None.
        wordings: Instruction to the wordings that training draws from; others are used as they are.
        options: The command line's options, stored in `run.json` for resuming; not part of the identity.
        base: For an adapter, the card of the policy that it is trained for.
    """

    model: Pi05Config
    embodiment: str
    tasks: tuple[LanguageTask, ...]
    recipe: Recipe
    data: tuple[str, ...]
    start_from: str | None = None
    norm_stats: str | None = None
    wordings: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    base: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.recipe.trains_actions:
            return
        needed = {"start_from": self.start_from, "norm_stats": self.norm_stats, "tasks": self.tasks}
        missing = [name for name, value in needed.items() if not value]
        if missing:
            raise UsageError(f"texts are trained for an existing policy: give {missing[0]}")

    def identity(self) -> dict[str, Any]:
        """Everything that distinguishes this training from others, as JSON."""
        content: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        del content[OPTIONS]
        feeding = any(task.feedback for task in self.tasks)
        for task in content["tasks"] if not feeding else ():
            del task["feedback"]
        for name in () if feeding else ("feedback_delay_s", "feedback_none", "feedback_own"):
            del content["recipe"][name]
        return content


def train(
    folder: Path,
    training: TrainingConfig,
    mixture: Mixture,
    tokenizer: SentencePieceTokenizer,
    *,
    schedule: Schedule | None = None,
    on_checkpoint: OnCheckpoint | None = None,
) -> TrainState:
    """Train a policy in `folder`, or resume the same training there.

    On one machine, a resumed training gives the same bits as an uninterrupted one.

    Args:
        folder: For checkpoints and logs.
        training: What to train and how.
        mixture: The demonstrations.
        tokenizer: The vocabulary; every checkpoint has a copy.
        schedule: When to log and to save.
        on_checkpoint: Called with the step and the folder of every checkpoint.

    Returns:
        The last state.

    Raises:
        UsageError: The parts do not fit together, `folder` holds another training or another process trains
            in it, or this one diverged; the message then names the last good checkpoint.
    """
    with locked_run(folder):
        run = {**training.identity(), DEMONSTRATIONS: mixture.fingerprint()}
        check_same_run(folder, run)
        trainer = _trainer(folder, training, mixture, tokenizer)
        state = _state(folder / CHECKPOINTS, training)
        # After all checks: bad options leave no folder.
        write_run_file(folder, {**run, OPTIONS: training.options})
        return trainer.run(state, schedule or Schedule(), on_checkpoint or (lambda _step, _folder: {}))


def _trainer(
    folder: Path, training: TrainingConfig, mixture: Mixture, tokenizer: SentencePieceTokenizer
) -> Trainer:
    if training.recipe.trains_actions and not mixture.has_actions:
        raise UsageError("no action is valid in any frame, so there is nothing to train; see `valid`")
    robot = embodiment(training.embodiment)
    statistics = _statistics(folder / CHECKPOINTS, training, mixture)
    transform = Transform(embodiment=robot, norms=norms_of(statistics))
    batches = TrainingBatches(
        dataclasses.replace(mixture, wordings=training.wordings),
        model=training.model,
        transform=transform,
        tokenizer=tokenizer,
        tasks=training.tasks,
        recipe=training.recipe,
    )
    objective = Objective(
        model=training.model, recipe=training.recipe, tasks=batches.tasks, layout=batches.layout
    )
    metadata = checkpoint.PolicyMetadata(
        model=training.model,
        embodiment=training.embodiment,
        asset_id=robot.asset_id,
        statistics=statistics,
        tokenizer=tokenizer.serialized,
        tasks=training.tasks,
        record={**training.identity(), "frames": len(mixture)},
        base=training.base,
    )
    return Trainer(folder, objective, batches, metadata, _base_weights(training))


def _base_weights(training: TrainingConfig) -> Weights | None:
    """The model that an adapter is trained for, which stays as it is; None where the policy is trained."""
    if training.recipe.adapter is None:
        return None
    return prepare(load(str(training.start_from), training.model), training.model)


def _statistics(checkpoints: Path, training: TrainingConfig, mixture: Mixture) -> Statistics:
    """The robot's statistics. Given ones are read from the newest checkpoint, as the source may be gone."""
    if training.norm_stats is None:
        return measure(mixture)
    newest = checkpoint.newest(checkpoints)
    return read_statistics(newest or fetch(training.norm_stats), embodiment(training.embodiment))


def _state(checkpoints: Path, training: TrainingConfig) -> TrainState:
    newest = checkpoint.newest(checkpoints)
    if newest is not None:
        return checkpoint.restore(newest, _template(training))
    if training.recipe.adapter is not None:
        arrays = initial_arrays(training.model, rank=training.recipe.adapter, seed=training.recipe.seed)
        params: Params = nested(arrays)
    elif training.start_from is None:
        params = initial_params(training.model, training.recipe.seed)
    else:
        params = load(training.start_from, training.model, dtype="float32")
    return init_state(params, training.recipe)


def _template(training: TrainingConfig) -> TrainState:
    """The shapes of a state, without reading `start_from`, which may be gone."""
    rank = training.recipe.adapter
    wanted = shapes(training.model) if rank is None else adapter_shapes(training.model.trunk, rank)
    kinds = {path: jax.ShapeDtypeStruct(shape, jnp.float32) for path, shape in wanted.items()}
    template: TrainState = jax.eval_shape(lambda params: init_state(params, training.recipe), nested(kinds))
    return template
