"""Plays the episodes of demonstrations: here, or in worker processes that share the policy's model."""

import contextlib
import dataclasses
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from configs.collection import CollectConfig
from configs.schema import RunConfig
from eval.collect.corrected import Corrected
from eval.collect.demonstrator import MeansWhatItDoes, OpenDemonstrator, scripted_demonstrator
from eval.collect.episode import Demonstration, Failure, demonstrate
from eval.collect.plan import Job
from eval.collect.store import EpisodeStore
from eval.policies.base import OpenPolicy
from eval.policies.sources import PolicySource, served
from eval.records.schema import Outcome
from eval.rollout.chunks import ActionError
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import TaskPlan
from eval.rollout.worlds import WorldHolder
from sim_envs.job_queue import JobQueue
from sim_envs.worker_process import WorkerConnection
from sim_envs.workers import LostJob, run_in_workers
from sim_envs.world import PhysicsError, World


class Worlds(Protocol):
    """Opens worlds, one at a time."""

    def of(self, plan: TaskPlan) -> World:
        """The world of that task."""

    def discard(self) -> None:
        """Close what is open."""


class Setting(Protocol):
    """Where a player gets its world and its demonstrator from. It is sent to every worker."""

    @property
    def model(self) -> RunConfig | None:
        """The run whose policy has a model and acts, or takes turns; None if there is none."""

    def worlds(self) -> AbstractContextManager[Worlds]:
        """Opens worlds."""

    def demonstrator(self, model: OpenPolicy | None) -> OpenDemonstrator:
        """Who acts, given the policy with a model, if there is one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simulation:
    """The suites' worlds and the configured policy.

    Attributes:
        kind: Of the policy.
        noise: How much an expert varies and errs, from 0 to 1.
        model: The run of a policy with a model: the policy itself, or a learner.
    """

    kind: str
    noise: float
    model: RunConfig | None

    def worlds(self) -> WorldHolder:
        """One simulator at a time."""
        return WorldHolder()

    def demonstrator(self, model: OpenPolicy | None) -> OpenDemonstrator:
        """The policy, or it and a learner by turns, ready to act in any of the worlds."""
        scripted = scripted_demonstrator(self.kind, self.noise)
        if model is None:
            return scripted
        if self.kind == "oxygen":
            return lambda suite, world: MeansWhatItDoes(model.in_world(suite, world))
        return lambda suite, world: Corrected(model.in_world(suite, world), scripted(suite, world))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """How an episode went.

    Attributes:
        job: Which.
        outcome: A success is in the store as a demonstration, a timeout as a failure unless failures are
            kept, an invalid action as a failure; an error is nowhere.
        frames: Frames of what is kept.
        error: The traceback of an error.
    """

    job: Job
    outcome: Outcome
    frames: int = 0
    error: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What every player is told.

    Attributes:
        setting: Where its world and its demonstrator come from.
        store: Where its episodes go.
        config: How they are written down.
    """

    setting: Setting
    store: EpisodeStore
    config: CollectConfig


def play_here(
    work: Work, jobs: Sequence[Job], model: OpenPolicy | None, *, interrupts: Interrupts
) -> Iterator[Report]:
    """Play the episodes in this process, one after the other.

    Raises:
        KeyboardInterrupt: The episode that was being played is lost.
    """
    demonstrator = work.setting.demonstrator(model)
    with work.setting.worlds() as worlds:
        for job in jobs:
            yield _played(work, job, worlds, demonstrator, interrupts)


def play_beside(
    work: Work, jobs: Sequence[Job], model: OpenPolicy | None, *, workers: int, interrupts: Interrupts
) -> Iterator[Report]:
    """Play the episodes in as many processes, yielding them as they end, in no order.

    Raises:
        UsageError: A worker cannot begin. What has been played to its end is kept.
        KeyboardInterrupt: The episodes that were being played are lost.
    """
    queue = JobQueue(jobs, task=lambda job: (job.key.suite, job.key.task_id), episode=lambda job: job.key)
    interfaces = [job.plan.suite.interface for job in jobs]
    with served([model] if model else [], interfaces, worlds=workers) as (server, sources):
        player = DemonstrationPlayer(work=work, source=sources[0] if sources else None)
        ended = run_in_workers(player, queue, workers=workers, check=interrupts.check, handler=server)
        with contextlib.closing(ended):
            for job, report in ended:
                lost = isinstance(report, LostJob)
                yield Report(job=job, outcome=Outcome.ERROR, error=report.reason) if lost else report


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemonstrationPlayer:
    """Plays demonstrations in a worker and puts them into the store.

    Attributes:
        work: What there is to know.
        source: Where the policy with a model is from, if there is one.
    """

    work: Work
    source: PolicySource | None

    @contextlib.contextmanager
    def open(self, connection: WorkerConnection) -> Iterator[Callable[[Job], Report]]:
        """See `sim_envs.worker_process.JobRunner`."""
        work, source = self.work, self.source
        with work.setting.worlds() as worlds, Interrupts() as interrupts:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
            demonstrator = work.setting.demonstrator(None if source is None else source.open(connection))
            yield lambda job: _played(work, job, worlds, demonstrator, interrupts)


def _played(
    work: Work, job: Job, worlds: Worlds, demonstrator: OpenDemonstrator, interrupts: Interrupts
) -> Report:
    """Play one episode. Whatever goes wrong in it becomes the report."""
    try:
        world = worlds.of(job.plan)
        policy = demonstrator(job.plan.suite, world)
        played = demonstrate(world, policy, job, work.config, interrupts)
        if isinstance(played, Demonstration):
            work.store.keep(played)
            outcome = Outcome.SUCCESS if played.solved else Outcome.TIMEOUT
            return Report(job=job, outcome=outcome, frames=played.rows.num_rows)
        work.store.note(played)
        return Report(job=job, outcome=Outcome.TIMEOUT)
    except (ActionError, PhysicsError):
        worlds.discard()
        work.store.note(Failure(job=job))
        return Report(job=job, outcome=Outcome.INVALID_ACTION)
    except Exception:  # noqa: BLE001 - the boundary around an episode
        worlds.discard()
        return Report(job=job, outcome=Outcome.ERROR, error=traceback.format_exc())
