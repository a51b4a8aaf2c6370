"""Plays the episodes of demonstrations in this process, or in workers that share the policy's model."""

import contextlib
import dataclasses
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from configs.collection import CollectConfig
from configs.exits import is_disk_full
from configs.feedback import FeedbackByTask
from configs.schema import RunConfig
from eval.collect.corrected import CorrectedLearner
from eval.collect.demonstrator import NoiseFreeDemonstrator, OpenDemonstrator, scripted_demonstrator
from eval.collect.episode import Demonstration, Failure, demonstrate
from eval.collect.plan import Job
from eval.collect.store import EpisodeStore
from eval.policies.base import LoadedPolicy
from eval.policies.sources import PolicySource, served
from eval.records.schema import Outcome
from eval.rollout.episode import WorldCache
from eval.rollout.execution import ActionError
from eval.rollout.interrupts import DeferredSignals
from eval.rollout.plan import TaskPlan
from sim_envs.worker_process import WorkerConnection
from sim_envs.workers import JobQueue, LostJob, run_in_workers
from sim_envs.world import PhysicsError, World


class Worlds(Protocol):
    """Opens worlds, one at a time."""

    def of(self, plan: TaskPlan) -> World:
        """The world of that task."""

    def discard(self) -> None:
        """Close the open world."""


class DemonstrationSource(Protocol):
    """Opens worlds and demonstrators. It is sent to every worker."""

    @property
    def model(self) -> RunConfig | None:
        """The run of the policy or learner that has a model; None if there is none."""

    def worlds(self) -> AbstractContextManager[Worlds]:
        """Opens worlds."""

    def demonstrator(self, model: LoadedPolicy | None) -> OpenDemonstrator:
        """Opens demonstrators, given the policy with a model, if there is one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simulation:
    """The suites' worlds and the configured policy.

    Attributes:
        kind: Kind of the policy.
        noise: Noise of an expert, 0 to 1.
        model: The run of the policy or learner that has a model.
    """

    kind: str
    noise: float
    model: RunConfig | None

    def worlds(self) -> WorldCache:
        """Holds one simulator at a time."""
        return WorldCache()

    def demonstrator(self, model: LoadedPolicy | None) -> OpenDemonstrator:
        """Opens the policy, or the learner and the policy in turns."""
        scripted = scripted_demonstrator(self.kind, self.noise)
        if model is None:
            return scripted
        if self.kind == "oxygen":
            return lambda suite, world: NoiseFreeDemonstrator(model.in_world(suite, world))
        return lambda suite, world: CorrectedLearner(
            model.in_world(suite, world), scripted(suite, world), keeps_writing=bool(model.feedback)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeReport:
    """The outcome of an episode.

    Attributes:
        job: The episode.
        outcome: The store has a demonstration of a success, and of a timeout if failures are kept; else a
            failure. Errors are not stored.
        frames: Frames kept.
        error: The traceback of an error.
    """

    job: Job
    outcome: Outcome
    frames: int = 0
    error: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectionContext:
    """The source, store and options that all workers share."""

    source: DemonstrationSource
    store: EpisodeStore
    config: CollectConfig


def play_in_process(
    context: CollectionContext,
    jobs: Sequence[Job],
    model: LoadedPolicy | None,
    *,
    interrupts: DeferredSignals,
) -> Iterator[EpisodeReport]:
    """Play the episodes in this process, one after the other.

    Raises:
        KeyboardInterrupt: Ctrl-C; the current episode is lost.
    """
    demonstrator = context.source.demonstrator(model)
    feedback = None if model is None else model.feedback
    with context.source.worlds() as worlds:
        for job in jobs:
            yield _play_episode(context, job, worlds, demonstrator, interrupts, feedback)


def play_in_processes(
    context: CollectionContext,
    jobs: Sequence[Job],
    model: LoadedPolicy | None,
    *,
    workers: int,
    interrupts: DeferredSignals,
) -> Iterator[EpisodeReport]:
    """Play the episodes in `workers` processes, yielding reports as they finish.

    Raises:
        UsageError: A worker cannot start. Finished episodes are kept.
        KeyboardInterrupt: Ctrl-C; the current episodes are lost.
    """
    queue = JobQueue(jobs, task=lambda job: (job.key.suite, job.key.task_id), episode=lambda job: job.key)
    interfaces = [job.plan.suite.interface for job in jobs]
    with served([model] if model else [], interfaces, worlds=workers) as (server, sources):
        player = DemonstrationPlayer(context=context, source=sources[0] if sources else None)
        ended = run_in_workers(player, queue, workers=workers, check=interrupts.check, handler=server)
        with contextlib.closing(ended):
            for job, report in ended:
                lost = isinstance(report, LostJob)
                yield EpisodeReport(job=job, outcome=Outcome.ERROR, error=report.reason) if lost else report


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemonstrationPlayer:
    """Plays demonstrations in a worker and stores them; `source` connects to the policy with a model."""

    context: CollectionContext
    source: PolicySource | None

    @contextlib.contextmanager
    def open(self, connection: WorkerConnection) -> Iterator[Callable[[Job], EpisodeReport]]:
        """See `sim_envs.worker_process.JobRunner`."""
        context, source = self.context, self.source
        with context.source.worlds() as worlds, DeferredSignals() as interrupts:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
            demonstrator = context.source.demonstrator(None if source is None else source.open(connection))
            feedback = None if source is None else source.feedback
            yield lambda job: _play_episode(context, job, worlds, demonstrator, interrupts, feedback)


def _play_episode(
    context: CollectionContext,
    job: Job,
    worlds: Worlds,
    demonstrator: OpenDemonstrator,
    interrupts: DeferredSignals,
    feedback: FeedbackByTask | None,
) -> EpisodeReport:
    """Play one episode; an exception becomes its report, unless the disk is full."""
    try:
        world = worlds.of(job.plan)
        policy = demonstrator(job.plan.suite, world)
        played = demonstrate(world, policy, job, context.config, interrupts, feedback)
        if isinstance(played, Demonstration):
            context.store.add(played)
            outcome = Outcome.SUCCESS if played.solved else Outcome.TIMEOUT
            return EpisodeReport(job=job, outcome=outcome, frames=played.rows.num_rows)
        context.store.add_failure(played)
        return EpisodeReport(job=job, outcome=Outcome.TIMEOUT)
    except (ActionError, PhysicsError):
        worlds.discard()
        context.store.add_failure(Failure(job=job))
        return EpisodeReport(job=job, outcome=Outcome.INVALID_ACTION)
    except Exception as error:
        if is_disk_full(error):
            raise
        worlds.discard()
        return EpisodeReport(job=job, outcome=Outcome.ERROR, error=traceback.format_exc())
