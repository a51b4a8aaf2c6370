"""The loop: batches to steps, steps to checkpoints, until the recipe is done or somebody says stop."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np

from configs.errors import UsageError
from oxygen.training import checkpoint
from oxygen.training.lessons import Lessons
from oxygen.training.logs import TrainingLog, read_log
from oxygen.training.losses import Metrics, Objective
from oxygen.training.optimiser import Step, TrainState, make_step
from oxygen.training.recipe import CHECKPOINTS

OnCheckpoint = Callable[[int, Path], Mapping[str, float]]
"""Called with the step and the folder of every checkpoint; returns numbers for the log, such as success.

Called first for the newest checkpoint where a training goes on and its log lacks such numbers of it.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """When a training notes, saves and ends; changes nothing in what it computes.

    Attributes:
        log_every: Steps between two notes, each the mean since the one before.
        save_every: Steps between two checkpoints.
        should_stop: Asked after every step; training then ends with a checkpoint.
        on_note: Called with the step and the numbers of every note, for a person to see.
    """

    log_every: int = 50
    save_every: int = 1000
    should_stop: Callable[[], bool] = lambda: False
    on_note: Callable[[int, Mapping[str, float]], None] = lambda _step, _numbers: None


class Trainer:
    """One training in its folder: `checkpoints/`, `log.jsonl`, `events/`, `curves.png`."""

    def __init__(
        self, folder: Path, objective: Objective, lessons: Lessons, served: checkpoint.Served
    ) -> None:
        self._folder = folder
        self._objective = objective
        self._lessons = lessons
        self._served = served
        self._step: Step = make_step(objective)

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self._folder / CHECKPOINTS

    def run(self, state: TrainState, schedule: Schedule, on_checkpoint: OnCheckpoint) -> TrainState:
        """Train from a state to the recipe's last step, or until told to stop; always ends with a checkpoint.

        The checkpoint it goes on from is told of first, unless the log has what came of that: a training that
        was killed in the rollouts of a checkpoint, be it the last, repeats them.

        Returns:
            The last state.

        Raises:
            UsageError: It has diverged. What was saved before is left as it is: no state is saved unchecked.
        """
        step, last = int(state.step), self._objective.recipe.steps
        with TrainingLog(self._folder, resumed_at=step) as log:
            begun = checkpoint.newest(self.checkpoints)
            if begun is not None and not _is_told_of(self._folder, step):
                self._note(log, step, on_checkpoint(step, begun), schedule)
            window = _Window()
            while step < last:
                state, metrics = self._step(state, self._lessons.batch(step))
                step += 1
                window.add(metrics)
                window.wait_for_the_one_before()
                ending = step == last or schedule.should_stop()
                saving = ending or step % schedule.save_every == 0
                if saving or step % schedule.log_every == 0:
                    self._note(log, step, self._closed(window, step), schedule)
                if saving:
                    saved = checkpoint.save(self.checkpoints, state, self._served)
                    self._note(log, step, on_checkpoint(step, saved), schedule)
                    log.draw()
                    window = _Window()
                if ending:
                    break
        return state

    def _closed(self, window: "_Window", step: int) -> dict[str, float]:
        """The window's numbers, if all of them are finite."""
        numbers = window.close(self._objective.recipe.batch)
        for name, number in numbers.items():
            if not math.isfinite(number):
                raise self._diverged(name, number, step)
        return numbers

    def _diverged(self, name: str, number: float, step: int) -> UsageError:
        good = checkpoint.newest(self.checkpoints)
        return UsageError(
            f"the training has diverged by step {step}: {name} is {number}. Begin again in another folder, "
            f"with --learning-rate below {self._objective.recipe.learning_rate:g}; "
            + ("nothing was saved" if good is None else f"the last good checkpoint is {good} (--start-from)")
        )

    @staticmethod
    def _note(log: TrainingLog, step: int, numbers: Mapping[str, float], schedule: Schedule) -> None:
        if numbers:
            log.note(step, numbers)
            schedule.on_note(step, numbers)


def _is_told_of(folder: Path, step: int) -> bool:
    """Whether the log of a training holds what came of telling of a checkpoint, beside the step's losses."""
    return any(line["step"] == step and "loss" not in line for line in read_log(folder))


class _Window:
    """The steps since the last note. Their numbers are fetched together, so that no step waits for it."""

    def __init__(self) -> None:
        self._metrics: list[Metrics] = []
        self._began = time.perf_counter()

    def add(self, metrics: Metrics) -> None:
        """Take in a step."""
        self._metrics.append(metrics)

    def wait_for_the_one_before(self) -> None:
        """Let the next batch be made while a step is computed, and no more than that one."""
        jax.block_until_ready(self._metrics[-2:-1])

    def close(self, batch: int) -> dict[str, float]:
        """The means, and the samples learnt in a second; the next window begins."""
        found = jax.device_get(self._metrics)
        seconds = time.perf_counter() - self._began
        means = {name: float(np.mean([metrics[name] for metrics in found])) for name in found[0]}
        rate = batch * len(found) / seconds
        self._metrics, self._began = [], time.perf_counter()
        return {**means, "samples_per_s": rate}
