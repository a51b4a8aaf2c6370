"""A training: starts or resumes it, and takes its steps until the last one or a stop request."""

import contextlib
import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
from oxygen.robots.norms import Statistics
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
from oxygen.weights.loading import load
from oxygen.weights.source import fetch

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
        run = _identity(training, samples, tokenizer)
        check_same_run(folder, run)
        if options.trains_actions and not samples.valid.any():
            raise UsageError("no action is valid in any frame, so there is nothing to train; see `valid`")
        newest = checkpoint.newest(checkpoints)
        statistics = _statistics(training, samples, newest)
        writer = _checkpoint_writer(training, samples, statistics, tokenizer)
        batches = TrainingBatches(samples, training, statistics=statistics, tokenizer=tokenizer)
        steps = _Steps(training, batches, newest)
        # After all checks: bad options leave no run file.
        write_run_file(folder, run, options.model_dump(mode="json"))
        with TrainingLog(folder, resumed_at=steps.done) as log:

            def note(metrics: Mapping[str, float]) -> None:
                if metrics:
                    log.write(steps.done, metrics)
                    on_log(steps.done, metrics)

            # A training killed during a checkpoint's rollouts repeats these.
            if newest and not has_rollouts(folder, steps.done):
                note(on_checkpoint(steps.done, newest))
            for ending in steps.take_all(should_stop):
                saving = ending or steps.done % options.save_every == 0
                if saving or steps.done % options.log_every == 0:
                    means = steps.means()
                    _check_finite(means, steps.done, options, checkpoint.newest(checkpoints))
                    note(means)
                if saving:
                    note(on_checkpoint(steps.done, writer.save(checkpoints, steps.state)))
                    draw_curves(folder)
        return steps.state


class _Steps:
    """The steps of a training, from its newest checkpoint on if there is one.

    Attributes:
        done: Their number.
        state: The state after the last of them.
    """

    def __init__(self, training: TrainingConfig, batches: TrainingBatches, newest: Path | None) -> None:
        options, model = training.options, training.model
        self._batches, self._options = batches, options
        self._objective = Objective(model=model, options=options, layout=batches.layout)
        # The model that an adapter is trained for.
        self._base = None if options.adapter is None else prepare(_start(training), model)
        self.state = _restored_state(training, newest) if newest else _initial_state(training)
        self.done = int(self.state.step)
        self._metrics: list[Metrics] = []  # since the last call of `means`, on the device
        self._since_s = 0.0
        self._first: contextlib.AbstractContextManager[None] = stage(
            f"compiling the training step, {count(model) / 1e6:.1f} million parameters in batches of "
            f"{options.batch}: a minute or more the first time"
        )

    def take_all(self, should_stop: Callable[[], bool]) -> Iterator[bool]:
        """Take steps until the last one or a stop request; yields after each whether it ends the training."""
        is_last = self.done >= self._options.steps
        while not is_last:
            self._take_one()
            is_last = self.done == self._options.steps or should_stop()
            yield is_last

    def _take_one(self) -> None:
        """Take a step. It is computed while the next batch is made."""
        if not self._metrics:
            self._since_s = time.perf_counter()
        batch = self._batches.batch(self.done)
        with self._first:
            self.state, metrics = optimiser.train_step(self._objective, self._base, self.state, batch)
        self._first = contextlib.nullcontext()
        self._metrics.append(metrics)
        jax.block_until_ready(self._metrics[-2:-1])
        self.done += 1

    def means(self) -> dict[str, float]:
        """The means of the metrics since the last call, and the samples per second."""
        steps = jax.device_get(self._metrics)  # together, so that no step waits for the transfer
        self._metrics = []
        means = {name: float(np.mean([metrics[name] for metrics in steps])) for name in steps[0]}
        seconds = time.perf_counter() - self._since_s
        return {**means, "samples_per_s": self._options.batch * len(steps) / seconds}


def _identity(
    training: TrainingConfig, samples: Samples, tokenizer: SentencePieceTokenizer
) -> dict[str, Any]:
    """What a training must have in common with the one that it resumes."""
    return {
        **training.identity(),
        "demonstrations": samples.fingerprint(),
        "vocabulary": hashlib.sha256(tokenizer.serialized).hexdigest(),
    }


def _checkpoint_writer(
    training: TrainingConfig, samples: Samples, statistics: Statistics, tokenizer: SentencePieceTokenizer
) -> checkpoint.CheckpointWriter:
    return checkpoint.CheckpointWriter(
        training=training,
        statistics=statistics,
        tokenizer=tokenizer.serialized,
        frames=len(samples),
        start=_start(training, "float32") if training.options.start_share else None,
    )


def _statistics(training: TrainingConfig, samples: Samples, newest: Path | None) -> Statistics:
    """From the newest checkpoint, as their source may be gone; else given, or of what the model predicts."""
    robot, horizon = embodiment(training.embodiment), training.model.horizon
    if source := newest or (training.norm_stats and fetch(training.norm_stats)):
        return statistics_of(robot, source)
    actions, valid = samples.actions[:, :horizon], samples.valid[:, :horizon]
    return measure(dataclasses.replace(samples, actions=actions, valid=valid), robot)


def _start(training: TrainingConfig, dtype: str | None = None) -> Params:
    return load(str(training.start_from), training.model, dtype=dtype)


def _initial_state(training: TrainingConfig) -> TrainState:
    options = training.options
    if options.adapter is not None:
        params: Params = nested(initial_arrays(training.model, rank=options.adapter, seed=options.seed))
    elif training.start_from is None:
        params = initial_params(training.model, options.seed)
    else:
        params = _start(training, "float32")
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
