"""A training: starts or resumes it, and takes its steps until the last one or a stop request."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from configs.errors import UsageError
from oxygen.model.adapter import initial_arrays
from oxygen.model.adapter import shapes as adapter_shapes
from oxygen.model.params import initial_params, nested, shapes
from oxygen.model.pi05 import prepare
from oxygen.robots.norms import RobotNorms, checkpoint_norms, read_statistics
from oxygen.robots.tokenizer import SentencePieceTokenizer
from oxygen.robots.transforms import Transform, embodiment
from oxygen.training import checkpoint
from oxygen.training.batches import TrainingBatches
from oxygen.training.config import TrainingConfig
from oxygen.training.logs import TrainingLog, draw_curves, read_log
from oxygen.training.losses import Metrics, Objective
from oxygen.training.optimiser import Step, TrainState, init_state, make_step
from oxygen.training.run_folder import (
    CHECKPOINTS,
    DEMONSTRATIONS,
    OPTIONS,
    check_same_run,
    locked_run,
    write_run_file,
)
from oxygen.training.samples import Mixture, measure
from oxygen.typing import Params
from oxygen.weights import fetch, load

OnCheckpoint = Callable[[int, Path], Mapping[str, float]]
"""Called with the step and the folder of every checkpoint; returns metrics to log, such as success rates.

A resumed training first calls it for its newest checkpoint if the log has no such metrics for it.
"""


def train(
    folder: Path,
    training: TrainingConfig,
    mixture: Mixture,
    tokenizer: SentencePieceTokenizer,
    *,
    on_checkpoint: OnCheckpoint = lambda _step, _folder: {},
    on_log: Callable[[int, Mapping[str, float]], None] = lambda _step, _metrics: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainState:
    """Train a policy in `folder`, or resume the same training there.

    On one machine, a resumed training gives the same bits as an uninterrupted one. It writes `checkpoints/`,
    `log.jsonl`, `events/` and `curves.png`, and ends with a checkpoint.

    Args:
        folder: For checkpoints and logs.
        training: What to train and how.
        mixture: The demonstrations.
        tokenizer: The vocabulary; every checkpoint has a copy.
        on_checkpoint: Called with the step and the folder of every checkpoint.
        on_log: Called with the step and the metrics of every log entry.
        should_stop: Called after every step; if true, training ends with a checkpoint.

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
            statistics = read_statistics(
                checkpoint_norms(newest or fetch(training.norm_stats), robot.asset_id),
                state=robot.interface.observation.state_size,
                actions=robot.interface.action.size,
            )
        batches = TrainingBatches(
            dataclasses.replace(mixture, wordings=training.wordings),
            model=training.model,
            transform=Transform(embodiment=robot, norms=RobotNorms.of(statistics)),
            tokenizer=tokenizer,
            tasks=training.tasks,
            options=options,
        )
        objective = Objective(
            model=training.model, options=options, tasks=batches.tasks, layout=batches.layout
        )
        writer = checkpoint.CheckpointWriter(
            training=training,
            statistics=statistics,
            tokenizer=tokenizer.serialized,
            frames=len(mixture),
        )
        base = None  # the model that an adapter is trained for
        if options.adapter is not None:
            base = prepare(load(str(training.start_from), training.model), training.model)
        state = _initial_state(training) if newest is None else _restored_state(training, newest)
        # After all checks: bad options leave no folder.
        write_run_file(folder, {**run, OPTIONS: options.model_dump(mode="json")})
        return _run_steps(
            folder,
            state,
            make_step(objective, base),
            batches,
            writer,
            on_checkpoint=on_checkpoint,
            on_log=on_log,
            should_stop=should_stop,
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


def _restored_state(training: TrainingConfig, newest: Path) -> TrainState:
    """The state of a checkpoint, by its shapes alone: `start_from` may be gone."""
    rank = training.options.adapter
    wanted = shapes(training.model) if rank is None else adapter_shapes(training.model.trunk, rank)
    kinds = {path: jax.ShapeDtypeStruct(shape, jnp.float32) for path, shape in wanted.items()}
    template = jax.eval_shape(lambda params: init_state(params, training.options), nested(kinds))
    return checkpoint.restore(newest, template)


def _run_steps(
    folder: Path,
    state: TrainState,
    take_step: Step,
    batches: TrainingBatches,
    writer: checkpoint.CheckpointWriter,
    *,
    on_checkpoint: OnCheckpoint,
    on_log: Callable[[int, Mapping[str, float]], None],
    should_stop: Callable[[], bool],
) -> TrainState:
    """Train from a state to the last step or a stop request, see `train`.

    If the log lacks `on_checkpoint` metrics for the newest checkpoint, they are computed first: a training
    killed during a checkpoint's rollouts repeats these.

    Raises:
        UsageError: It has diverged. Earlier checkpoints stay; a diverged state is never saved.
    """
    options = writer.training.options
    step, checkpoints = int(state.step), folder / CHECKPOINTS
    with TrainingLog(folder, resumed_at=step) as log:

        def note(metrics: Mapping[str, float]) -> None:
            if metrics:
                log.write(step, metrics)
                on_log(step, metrics)

        newest = checkpoint.newest(checkpoints)
        if newest and not any(line["step"] == step and "loss" not in line for line in read_log(folder)):
            note(on_checkpoint(step, newest))
        window: list[Metrics] = []
        started_s = time.perf_counter()
        ending = step >= options.steps
        while not ending:
            state, metrics = take_step(state, batches.batch(step))
            step += 1
            window.append(metrics)
            jax.block_until_ready(window[-2:-1])  # the next batch is made while a step is computed
            ending = step == options.steps or should_stop()
            saving = ending or step % options.save_every == 0
            if saving or step % options.log_every == 0:
                fetched = jax.device_get(window)  # together, so that no step waits for the transfer
                rate = options.batch * len(window) / (time.perf_counter() - started_s)
                means = {name: float(np.mean([each[name] for each in fetched])) for name in fetched[0]}
                for name, value in means.items():
                    if not math.isfinite(value):
                        good = checkpoint.newest(checkpoints)
                        left = f"the last good checkpoint is {good} (--start-from)"
                        raise UsageError(
                            f"the training has diverged by step {step}: {name} is {value}. Start again in "
                            f"another folder, with --learning-rate below {options.learning_rate:g}; "
                            f"{left if good else 'nothing was saved'}"
                        )
                note({**means, "samples_per_s": rate})
                window, started_s = [], time.perf_counter()
            if saving:
                saved = writer.save(checkpoints, state)
                note(on_checkpoint(step, saved))
                draw_curves(folder)
                started_s = time.perf_counter()
    return state
