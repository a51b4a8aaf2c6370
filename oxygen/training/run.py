"""A training: starts or resumes it, and takes its steps until the last one or a stop request."""

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from configs.paths import locked
from configs.progress import stage
from configs.training import TrainConfig
from contracts.errors import UsageError
from oxygen.model.adapter import initial_arrays
from oxygen.model.adapter import shapes as adapter_shapes
from oxygen.model.params import count, initial_params, nested, shapes
from oxygen.model.pi05 import prepare
from oxygen.robots.tokenizer import SentencePieceTokenizer
from oxygen.robots.transforms import embodiment, statistics_of
from oxygen.training import checkpoint, optimiser
from oxygen.training.batches import TrainingBatches
from oxygen.training.config import TrainingConfig
from oxygen.training.losses import Metrics, Objective
from oxygen.training.optimiser import TrainState, init_state
from oxygen.training.run_folder import (
    CHECKPOINTS,
    TrainingLog,
    check_same_run,
    draw_curves,
    has_rollouts,
    write_run_file,
)
from oxygen.training.samples import Samples, measure
from oxygen.typing import Params
from oxygen.weights import fetch, load

OnCheckpoint = Callable[[int, Path], Mapping[str, float]]
"""Called with the step and the folder of every checkpoint; returns metrics to log, such as success rates.

A resumed training first calls it for its newest checkpoint if the log has no such metrics for it.
"""


def train(
    folder: Path,
    training: TrainingConfig,
    samples: Samples,
    tokenizer: SentencePieceTokenizer,
    *,
    on_checkpoint: OnCheckpoint = lambda _step, _folder: {},
    on_log: Callable[[int, Mapping[str, float]], None] = lambda _step, _metrics: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainState:
    """Train a policy in `folder`, or resume the same training there; returns the last state.

    On one machine, a resumed training gives the same bits as an uninterrupted one. It writes `checkpoints/`,
    each with a copy of the vocabulary, `log.jsonl`, `events/` and `curves.png`, and ends with a checkpoint.

    Args:
        on_checkpoint: See `OnCheckpoint`.
        on_log: Called with the step and the metrics of every log entry.
        should_stop: Called after every step; if true, training ends with a checkpoint.

    Raises:
        UsageError: The parts do not fit together, `folder` holds another training or another process trains
            in it, or this one diverged; the message then names the last good checkpoint.
    """
    options, checkpoints = training.options, folder / CHECKPOINTS
    with locked(folder):
        run = {
            **training.identity(),
            "demonstrations": samples.fingerprint(),
            "vocabulary": hashlib.sha256(tokenizer.serialized).hexdigest(),
        }
        check_same_run(folder, run)
        if options.trains_actions and not samples.valid.any():
            raise UsageError("no action is valid in any frame, so there is nothing to train; see `valid`")
        newest, robot = checkpoint.newest(checkpoints), embodiment(training.embodiment)
        if training.norm_stats is None:
            statistics = measure(samples, robot)
        else:  # from the newest checkpoint, as the source may be gone
            statistics = statistics_of(robot, newest or fetch(training.norm_stats))
        batches = TrainingBatches(samples, training, statistics=statistics, tokenizer=tokenizer)
        objective = Objective(model=training.model, options=options, layout=batches.layout)
        given = str(training.start_from)
        writer = checkpoint.CheckpointWriter(
            training=training,
            statistics=statistics,
            tokenizer=tokenizer.serialized,
            frames=len(samples),
            start=load(given, training.model, dtype="float32") if options.start_share else None,
        )
        base = None  # the model that an adapter is trained for
        if options.adapter is not None:
            base = prepare(load(given, training.model), training.model)
        state = _restored_state(training, newest) if newest else _initial_state(training)
        # After all checks: bad options leave no run file.
        write_run_file(folder, run, options.model_dump(mode="json"))
        step = int(state.step)
        with TrainingLog(folder, resumed_at=step) as log:

            def note(metrics: Mapping[str, float]) -> None:
                if metrics:
                    log.write(step, metrics)
                    on_log(step, metrics)

            # A training killed during a checkpoint's rollouts repeats these.
            if newest and not has_rollouts(folder, step):
                note(on_checkpoint(step, newest))
            window: list[Metrics] = []
            started_s = time.perf_counter()
            ending = step >= options.steps
            first: contextlib.AbstractContextManager[None] = stage(
                f"compiling the training step, {count(training.model) / 1e6:.1f} million parameters in "
                f"batches of {options.batch}: a minute or more the first time"
            )
            while not ending:
                batch = batches.batch(step)
                with first:
                    state, metrics = optimiser.train_step(objective, base, state, batch)
                first = contextlib.nullcontext()
                step += 1
                window.append(metrics)
                jax.block_until_ready(window[-2:-1])  # the next batch is made while a step is computed
                ending = step == options.steps or should_stop()
                saving = ending or step % options.save_every == 0
                if saving or step % options.log_every == 0:
                    fetched = jax.device_get(window)  # together, so that no step waits for the transfer
                    means = {name: float(np.mean([each[name] for each in fetched])) for name in fetched[0]}
                    rate = options.batch * len(window) / (time.perf_counter() - started_s)
                    _check_finite(means, step, options, checkpoint.newest(checkpoints))
                    note({**means, "samples_per_s": rate})
                    window, started_s = [], time.perf_counter()
                if saving:
                    note(on_checkpoint(step, writer.save(checkpoints, state)))
                    draw_curves(folder)
                    started_s = time.perf_counter()
        return state


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


def _check_finite(metrics: Mapping[str, float], step: int, options: TrainConfig, newest: Path | None) -> None:
    """Refuse to save a diverged state; earlier checkpoints stay."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            left = f"the last good checkpoint is {newest} (--start-from)" if newest else "nothing was saved"
            raise UsageError(
                f"the training has diverged by step {step}: {name} is {value}. Start again in another "
                f"folder, with --learning-rate below {options.learning_rate:g}; {left}"
            )
