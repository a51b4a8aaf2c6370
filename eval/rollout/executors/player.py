"""What plays an episode in one variant, and leaves its record: in this process, or in a worker.

Imports no JAX: workers need none.
"""

import contextlib
import dataclasses
import functools
import signal
from collections.abc import Callable, Iterator

from configs.schema import RunConfig
from eval.policies.base import OpenPolicy
from eval.policies.sources import PolicySource
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult, Outcome
from eval.rollout.chunks import Overlap
from eval.rollout.clock import Clock
from eval.rollout.clock_choice import find_clock
from eval.rollout.episode import EpisodeContext, run_episode
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import EpisodePlan, TaskPlan
from eval.rollout.recorder import EpisodeRecorder
from eval.rollout.timeline import Waiting
from eval.rollout.worlds import WorldHolder
from sim_envs.worker_process import Line
from sim_envs.workers import LostJob
from sim_envs.world import EpisodeKey


class WorkerLostError(RuntimeError):
    """An episode has ended two worker processes, one after the other."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeJob:
    """One episode in one variant.

    Attributes:
        variant: Index of the variant.
        task: Index of the episode's task in the plan of the variant.
        key: The episode.
    """

    variant: int
    task: int
    key: EpisodeKey


def episode_context(
    config: RunConfig, policy: OpenPolicy, clock: Clock, *, worlds: WorldHolder, interrupts: Interrupts
) -> EpisodeContext:
    """Where the episodes of a variant are played."""
    return EpisodeContext(
        worlds=worlds,
        policy=policy,
        clock=clock,
        waiting=Waiting(config.while_waiting),
        overlap=Overlap(config.overlap),
        interrupts=interrupts,
    )


def run_job(job: EpisodeJob, task: TaskPlan, run: Run, context: EpisodeContext) -> EpisodeResult:
    """Play an episode and leave its files; the record is the caller's to append."""
    return run_episode(context, task, job.key, EpisodeRecorder(run.folder, task, job.key, run.config))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodePlayer:
    """Plays episodes in a worker.

    Attributes:
        plans: All episodes of the evaluation, as each variant plays them.
        runs: The run of each variant.
        sources: Where the policy of each variant is from.
    """

    plans: tuple[EpisodePlan, ...]
    runs: tuple[Run, ...]
    sources: tuple[PolicySource, ...]

    @contextlib.contextmanager
    def opened(self, line: Line) -> Iterator[Callable[[EpisodeJob], EpisodeResult]]:
        """See `sim_envs.worker_process.Player`."""
        with WorldHolder() as worlds, Interrupts() as interrupts:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one

            @functools.cache
            def context_of(variant: int) -> EpisodeContext:
                config = self.runs[variant].config
                clock = find_clock(config, self.plans[variant].keys)
                context = episode_context(
                    config, self.sources[variant].open(line), clock, worlds=worlds, interrupts=interrupts
                )
                return dataclasses.replace(context, fatal=(MemoryError,))

            yield lambda job: run_job(
                job,
                self.plans[job.variant].tasks[job.task],
                self.runs[job.variant],
                context_of(job.variant),
            )


def lost_record(job: EpisodeJob, task: TaskPlan, run: Run, lost: LostJob) -> EpisodeResult:
    """The record of an episode that ended its process."""
    config = run.config.model_copy(update={"video": "none"})
    error = WorkerLostError(f"its process was lost, and the one that played it again as well: {lost.reason}")
    return EpisodeRecorder(run.folder, task, job.key, config).result(Outcome.ERROR, error)
