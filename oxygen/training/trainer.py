"""The training loop: steps, logging and checkpoints, until the last step or a stop request."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np

from configs.errors import UsageError
from configs.training import TrainConfig
from oxygen.training import checkpoint
from oxygen.training.batches import TrainingBatches
from oxygen.training.logs import TrainingLog, draw_curves, read_log
from oxygen.training.losses import Metrics
from oxygen.training.optimiser import Step, TrainState
from oxygen.training.run_folder import CHECKPOINTS

OnCheckpoint = Callable[[int, Path], Mapping[str, float]]
"""Called with the step and the folder of every checkpoint; returns metrics to log, such as success rates.

A resumed training first calls it for its newest checkpoint if the log has no such metrics for it.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """When a training logs, saves and stops; does not affect the parameters.

    Attributes:
        log_every: Steps between log entries, each the mean since the previous one.
        save_every: Steps between checkpoints.
        should_stop: Called after every step; if true, training ends with a checkpoint.
        on_log: Called with the step and the metrics of every log entry.
    """

    log_every: int = 50
    save_every: int = 1000
    should_stop: Callable[[], bool] = lambda: False
    on_log: Callable[[int, Mapping[str, float]], None] = lambda _step, _metrics: None


def run_steps(
    folder: Path,
    state: TrainState,
    take_step: Step,
    batches: TrainingBatches,
    *,
    options: TrainConfig,
    metadata: checkpoint.PolicyMetadata,
    schedule: Schedule,
    on_checkpoint: OnCheckpoint,
) -> TrainState:
    """Train from a state to the last step or a stop request, and end with a checkpoint.

    Writes `checkpoints/`, `log.jsonl`, `events/` and `curves.png`. If the log lacks `on_checkpoint` metrics
    for the newest checkpoint, they are computed first: a training killed during a checkpoint's rollouts
    repeats these.

    Raises:
        UsageError: It has diverged. Earlier checkpoints stay; a diverged state is never saved.
    """
    step, checkpoints = int(state.step), folder / CHECKPOINTS
    with TrainingLog(folder, resumed_at=step) as log:

        def note(metrics: Mapping[str, float]) -> None:
            if metrics:
                log.write(step, metrics)
                schedule.on_log(step, metrics)

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
            ending = step == options.steps or schedule.should_stop()
            saving = ending or step % schedule.save_every == 0
            if saving or step % schedule.log_every == 0:
                fetched = jax.device_get(window)  # together, so that no step waits for the transfer
                rate = options.batch * len(window) / (time.perf_counter() - started_s)
                means = {name: float(np.mean([each[name] for each in fetched])) for name in fetched[0]}
                _check_finite(means, step, checkpoints, options)
                note({**means, "samples_per_s": rate})
                window, started_s = [], time.perf_counter()
            if saving:
                saved = checkpoint.save(checkpoints, state, metadata)
                note(on_checkpoint(step, saved))
                draw_curves(folder)
                started_s = time.perf_counter()
    return state


def _check_finite(means: Mapping[str, float], step: int, checkpoints: Path, options: TrainConfig) -> None:
    for name, value in means.items():
        if not math.isfinite(value):
            good = checkpoint.newest(checkpoints)
            left = f"the last good checkpoint is {good} (--start-from)" if good else "nothing was saved"
            raise UsageError(
                f"the training has diverged by step {step}: {name} is {value}. Start again in another "
                f"folder, with --learning-rate below {options.learning_rate:g}; {left}"
            )
