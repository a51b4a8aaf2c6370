"""Times each compiled program alone, on the same device and with the same inputs as the modes."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from eval.bench.schedule import StageTimes
from eval.bench.workloads import BenchConfiguration
from oxygen.model.inputs import ModelInput
from oxygen.serving.requests import Request
from oxygen.serving.runner import Runner

_CALLS = 3


class StageTimer:
    """Times the programs of a runner on a separate KV pool."""

    def __init__(self, runner: Runner, inputs: ModelInput, suffix: Sequence[int]) -> None:
        self._runner = runner
        self._inputs = inputs
        self._suffix = tuple(suffix)
        self._pool, self._texts = runner.empty()
        self._prefix = runner.prefill(inputs)

    def times(self) -> StageTimes:
        """Milliseconds of each program; the device is idle before and after."""
        runner, zeros = self._runner, [0] * self._runner.sizes.robots
        return self.language(
            prefill=_mean_ms(lambda: runner.prefill(self._inputs)),
            denoise=_mean_ms(lambda: runner.denoise(self._prefix, zeros, zeros)),
            guided_denoise=_mean_ms(
                lambda: runner.guided_denoise(self._prefix, zeros, zeros, runner.unguided())
            ),
        )

    def language(self, *, prefill: float, denoise: float, guided_denoise: float) -> StageTimes:
        """Milliseconds of each program; the three given ones are not measured again."""
        runner = self._runner
        return StageTimes(
            prefill=prefill,
            denoise=denoise,
            guided_denoise=guided_denoise,
            fork=_mean_ms(lambda: self._fork(min(runner.sizes.forks[-1], runner.sizes.slots))),
            decode={batch: self._decode_ms(batch) for batch in runner.sizes.rows},
        )

    def _fork(self, texts: int) -> Any:
        """Start texts in the first slots, a full fork at a time."""
        batch = self._runner.sizes.forks[-1]
        for start in range(0, texts, batch):
            slots = range(start, min(start + batch, texts))
            new = self._runner.new_requests([self._request(slot) for slot in slots])
            self._pool, self._texts = self._runner.fork(self._prefix, new, self._pool, self._texts)
        return self._texts

    def _request(self, slot: int) -> Request:
        robot = slot % self._runner.sizes.robots
        return Request(slot=slot, robot=robot, suffix=self._suffix, query=0, task=0)

    def _decode_ms(self, batch: int) -> float:
        """Mean time of one decode step, over all steps of a full batch of texts, queued at once."""
        size = self._runner.sizes
        slots = range(min(batch, size.slots))
        jax.block_until_ready(self._fork(len(slots)))
        began = time.perf_counter()
        for _ in range(size.limit):
            self._pool, self._texts = self._runner.decode(slots, self._pool, self._texts, batch=batch)
        jax.block_until_ready(self._texts)
        return 1e3 * (time.perf_counter() - began) / size.limit


class ConfigurationStageTimer:
    """Times the programs of several configurations, which share prefill and denoise."""

    def __init__(
        self, runners: Mapping[BenchConfiguration, Runner], inputs: ModelInput, suffix: Sequence[int]
    ) -> None:
        self._runners = runners
        self._timers = {runner: StageTimer(runner, inputs, suffix) for runner in runners.values()}

    def times(self) -> Mapping[BenchConfiguration, StageTimes]:
        """Milliseconds of each configuration's programs."""
        first, *others = self._timers
        shared = self._timers[first].times()
        by_runner = {first: shared} | {
            runner: self._timers[runner].language(
                prefill=shared.prefill, denoise=shared.denoise, guided_denoise=shared.guided_denoise
            )
            for runner in others
        }
        return {configuration: by_runner[runner] for configuration, runner in self._runners.items()}


def _mean_ms(program: Callable[[], Any]) -> float:
    """Mean milliseconds of a call, each waited for."""
    began = time.perf_counter()
    for _ in range(_CALLS):
        jax.block_until_ready(program())
    return 1e3 * (time.perf_counter() - began) / _CALLS
