"""Runs one episode of a variant and writes its files, in this process or in a worker. Imports no JAX."""

import contextlib
import dataclasses
import functools
import signal
from collections.abc import Callable, Iterator
from typing import Any

from configs.schema import RunConfig
from eval.policies.base import LoadedPolicy
from eval.policies.sources import PolicySource
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult, Outcome
from eval.rollout.chunks import Overlap
from eval.rollout.clock import Clock
from eval.rollout.clock_choice import find_clock
from eval.rollout.episode import EpisodeContext, run_episode
from eval.rollout.interrupts import DeferredSignals
from eval.rollout.plan import EpisodePlan, TaskPlan
from eval.rollout.recorder import EpisodeRecorder
from eval.rollout.timeline import Waiting
from eval.rollout.worlds import WorldCache
from sim_envs.worker_process import WorkerConnection
from sim_envs.workers import LostJob
from sim_envs.world import EpisodeKey


class WorkerLostError(RuntimeError):
    """An episode crashed two worker processes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeJob:
    """One episode in one variant; `variant` and `task` are indices into runs and the plan's tasks."""

    variant: int
    task: int
    key: EpisodeKey


def episode_context(config: RunConfig, policy: LoadedPolicy, clock: Clock, **shared: Any) -> EpisodeContext:
    """The context of a variant's episodes; `shared` are further fields of `EpisodeContext`."""
    waiting, overlap = Waiting(config.while_waiting), Overlap(config.overlap)
    return EpisodeContext(policy=policy, clock=clock, waiting=waiting, overlap=overlap, **shared)


def run_job(job: EpisodeJob, task: TaskPlan, run: Run, context: EpisodeContext) -> EpisodeResult:
    """Run an episode and write its files. The caller appends the returned record."""
    return run_episode(context, task, job.key, EpisodeRecorder(run.folder, task, job.key, run.config))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodePlayer:
    """Runs episodes in a worker. Plans, runs and policy sources are one per variant."""

    plans: tuple[EpisodePlan, ...]
    runs: tuple[Run, ...]
    sources: tuple[PolicySource, ...]

    @contextlib.contextmanager
    def open(self, connection: WorkerConnection) -> Iterator[Callable[[EpisodeJob], EpisodeResult]]:
        """See `sim_envs.worker_process.JobRunner`."""
        with WorldCache() as worlds, DeferredSignals() as interrupts:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C

            @functools.cache
            def context_of(variant: int) -> EpisodeContext:
                config = self.runs[variant].config
                clock = find_clock(config, self.plans[variant].keys)
                policy = self.sources[variant].open(connection)
                shared = {"worlds": worlds, "interrupts": interrupts, "fatal": (MemoryError,)}
                return episode_context(config, policy, clock, **shared)

            yield lambda job: run_job(
                job, self.plans[job.variant].tasks[job.task], self.runs[job.variant], context_of(job.variant)
            )


def lost_record(job: EpisodeJob, task: TaskPlan, run: Run, lost: LostJob) -> EpisodeResult:
    """The record of an episode that crashed its worker twice."""
    config = run.config.model_copy(update={"video": "none"})
    error = WorkerLostError(f"its worker process was lost, and so was the one that retried it: {lost.reason}")
    return EpisodeRecorder(run.folder, task, job.key, config).result(Outcome.ERROR, error)
