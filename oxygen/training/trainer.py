"""The training loop: steps, logging and checkpoints, until the last step or a stop request."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np

from configs.errors import UsageError
from oxygen.model.pi05 import Weights
from oxygen.training import checkpoint
from oxygen.training.batches import TrainingBatches
from oxygen.training.logs import TrainingLog, draw_curves, read_log
from oxygen.training.losses import Metrics, Objective
from oxygen.training.optimiser import Step, TrainState, make_step
from oxygen.training.recipe import CHECKPOINTS

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


class Trainer:
    """Trains in a folder; writes `checkpoints/`, `log.jsonl`, `events/` and `curves.png`."""

    def __init__(
        self,
        folder: Path,
        objective: Objective,
        batches: TrainingBatches,
        metadata: checkpoint.PolicyMetadata,
        base: Weights | None = None,
    ) -> None:
        self._folder = folder
        self._checkpoints = folder / CHECKPOINTS
        self._objective = objective
        self._batches = batches
        self._metadata = metadata
        self._step: Step = make_step(objective, base)

    def run(self, state: TrainState, schedule: Schedule, on_checkpoint: OnCheckpoint) -> TrainState:
        """Train from a state to the recipe's last step or a stop request, and end with a checkpoint.

        If the log lacks `on_checkpoint` metrics for the newest checkpoint, they are computed first: a
        training killed during a checkpoint's rollouts repeats these.

        Returns:
            The last state.

        Raises:
            UsageError: It has diverged. Earlier checkpoints stay; a diverged state is never saved.
        """
        step, last = int(state.step), self._objective.recipe.steps
        with TrainingLog(self._folder, resumed_at=step) as log:
            newest = checkpoint.newest(self._checkpoints)
            logged = any(line["step"] == step and "loss" not in line for line in read_log(self._folder))
            if newest is not None and not logged:
                self._log(log, step, on_checkpoint(step, newest), schedule)
            window = _Window()
            while step < last:
                state, metrics = self._step(state, self._batches.batch(step))
                step += 1
                window.add(metrics)
                window.wait_for_previous_step()
                ending = step == last or schedule.should_stop()
                saving = ending or step % schedule.save_every == 0
                if saving or step % schedule.log_every == 0:
                    self._log(log, step, self._finite_means(window, step), schedule)
                if saving:
                    saved = checkpoint.save(self._checkpoints, state, self._metadata)
                    self._log(log, step, on_checkpoint(step, saved), schedule)
                    draw_curves(self._folder)
                    window = _Window()
                if ending:
                    break
        return state

    def _finite_means(self, window: "_Window", step: int) -> dict[str, float]:
        """The window's means; raises if one is not finite."""
        recipe = self._objective.recipe
        means = window.close(recipe.batch)
        for name, value in means.items():
            if not math.isfinite(value):
                good = checkpoint.newest(self._checkpoints)
                left = f"the last good checkpoint is {good} (--start-from)" if good else "nothing was saved"
                raise UsageError(
                    f"the training has diverged by step {step}: {name} is {value}. Start again in another "
                    f"folder, with --learning-rate below {recipe.learning_rate:g}; {left}"
                )
        return means

    @staticmethod
    def _log(log: TrainingLog, step: int, metrics: Mapping[str, float], schedule: Schedule) -> None:
        if metrics:
            log.write(step, metrics)
            schedule.on_log(step, metrics)


class _Window:
    """Metrics since the last log entry, fetched together so that no step waits for the transfer."""

    def __init__(self) -> None:
        self._metrics: list[Metrics] = []
        self._started_s = time.perf_counter()

    def add(self, metrics: Metrics) -> None:
        """Add the metrics of a step."""
        self._metrics.append(metrics)

    def wait_for_previous_step(self) -> None:
        """Keep at most one step ahead of the device: the next batch is made while a step is computed."""
        jax.block_until_ready(self._metrics[-2:-1])

    def close(self, batch: int) -> dict[str, float]:
        """The means and the samples per second; starts the next window."""
        fetched = jax.device_get(self._metrics)
        seconds = time.perf_counter() - self._started_s
        means = {name: float(np.mean([metrics[name] for metrics in fetched])) for name in fetched[0]}
        rate = batch * len(fetched) / seconds
        self._metrics, self._started_s = [], time.perf_counter()
        return {**means, "samples_per_s": rate}
