"""A training run from its configuration, started or resumed."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from configs.errors import UsageError
from configs.training import TrainConfig
from oxygen.model.adapter import initial_arrays
from oxygen.model.adapter import shapes as adapter_shapes
from oxygen.model.config import Pi05Config
from oxygen.model.params import nested, shapes
from oxygen.model.pi05 import prepare
from oxygen.robots.tokenizer import SentencePieceTokenizer
from oxygen.robots.transforms import Transform, embodiment
from oxygen.serving.language import LanguageTask
from oxygen.training import checkpoint
from oxygen.training.batches import TrainingBatches
from oxygen.training.initialisation import initial_params
from oxygen.training.losses import Objective
from oxygen.training.optimiser import TrainState, init_state, make_step
from oxygen.training.run_folder import (
    CHECKPOINTS,
    DEMONSTRATIONS,
    OPTIONS,
    check_same_run,
    locked_run,
    write_run_file,
)
from oxygen.training.samples import Mixture
from oxygen.training.statistics import measure, norms_of, read_statistics
from oxygen.training.trainer import OnCheckpoint, Schedule, run_steps
from oxygen.typing import Params
from oxygen.weights import fetch, load


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The options of a training with their names resolved.

    Attributes:
        model: The model's sizes.
        embodiment: Name of the robot, see `oxygen.robots.transforms`.
        tasks: The language tasks to train.
        options: The options, stored in `run.json` for resuming. The hyperparameters and the names of the
            demonstrations are taken from them.
        start_from: Checkpoint with the initial parameters; random ones from the seed if None.
        norm_stats: A checkpoint or a `norm_stats.json` with the robot's statistics; measured over the
            demonstrations if None.
        wordings: Instruction to the wordings that training draws from; others are used as they are.
        base: For an adapter, the card of the policy that it is trained for.
    """

    model: Pi05Config
    embodiment: str
    tasks: tuple[LanguageTask, ...]
    options: TrainConfig
    start_from: str | None = None
    norm_stats: str | None = None
    wordings: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    base: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        options = self.options
        if options.text_rows > options.batch:
            raise UsageError(f"text_rows is {options.text_rows}; give 1 to the batch's {options.batch}")
        if options.trains_actions:
            return
        if options.text_rows < options.batch:
            raise UsageError(
                f"text_rows is {options.text_rows} of a batch of {options.batch}; leave it out where only "
                "texts are trained"
            )
        needed = {"start_from": self.start_from, "norm_stats": self.norm_stats, "tasks": self.tasks}
        missing = [name for name, value in needed.items() if not value]
        if missing:
            raise UsageError(f"texts are trained for an existing policy: give {missing[0]}")

    def identity(self) -> dict[str, Any]:
        """Everything that distinguishes this training from others, as JSON."""
        content = dataclasses.asdict(self)
        del content["options"]
        content |= {"recipe": self.options.recipe(), "data": self.options.data}
        as_json: dict[str, Any] = json.loads(json.dumps(content))
        feeding = any(task.feedback for task in self.tasks)
        for task in as_json["tasks"] if not feeding else ():
            del task["feedback"]
        for name in () if feeding else ("feedback_delay_s", "feedback_none", "feedback_own"):
            del as_json["recipe"][name]
        return as_json


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
    options = training.options
    with locked_run(folder):
        run = {**training.identity(), DEMONSTRATIONS: mixture.fingerprint()}
        check_same_run(folder, run)
        if options.trains_actions and not mixture.has_actions:
            raise UsageError("no action is valid in any frame, so there is nothing to train; see `valid`")
        newest, robot = checkpoint.newest(folder / CHECKPOINTS), embodiment(training.embodiment)
        if training.norm_stats is None:
            statistics = measure(mixture)
        else:  # from the newest checkpoint, as the source may be gone
            statistics = read_statistics(newest or fetch(training.norm_stats), robot)
        batches = TrainingBatches(
            dataclasses.replace(mixture, wordings=training.wordings),
            model=training.model,
            transform=Transform(embodiment=robot, norms=norms_of(statistics)),
            tokenizer=tokenizer,
            tasks=training.tasks,
            options=options,
        )
        objective = Objective(
            model=training.model, options=options, tasks=batches.tasks, layout=batches.layout
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
        base = None  # the model that an adapter is trained for
        if options.adapter is not None:
            base = prepare(load(str(training.start_from), training.model), training.model)
        state = (
            _initial_state(training) if newest is None else checkpoint.restore(newest, _template(training))
        )
        # After all checks: bad options leave no folder.
        write_run_file(folder, {**run, OPTIONS: options.model_dump(mode="json")})
        return run_steps(
            folder,
            state,
            make_step(objective, base),
            batches,
            options=options,
            metadata=metadata,
            schedule=schedule or Schedule(),
            on_checkpoint=on_checkpoint or (lambda _step, _folder: {}),
        )


def _initial_state(training: TrainingConfig) -> TrainState:
    options = training.options
    if options.adapter is not None:
        params: Params = nested(initial_arrays(training.model, rank=options.adapter, seed=options.seed))
    elif training.start_from is None:
        params = initial_params(training.model, options.seed)
    else:
        params = load(training.start_from, training.model, dtype="float32")
    return init_state(params, options)


def _template(training: TrainingConfig) -> TrainState:
    """The shapes of a state, without reading `start_from`, which may be gone."""
    rank = training.options.adapter
    wanted = shapes(training.model) if rank is None else adapter_shapes(training.model.trunk, rank)
    kinds = {path: jax.ShapeDtypeStruct(shape, jnp.float32) for path, shape in wanted.items()}
    template: TrainState = jax.eval_shape(lambda params: init_state(params, training.options), nested(kinds))
    return template
