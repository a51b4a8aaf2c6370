"""Plays the episodes of demonstrations in this process, or in workers that share the policy's model."""

import contextlib
import dataclasses
import functools
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence

from configs.collection import CollectConfig
from configs.exits import is_disk_full
from configs.feedback import FeedbackByTask
from configs.schema import RunConfig
from configs.signals import DeferredSignals
from eval.collect.demonstrators import CorrectedLearner, NoiseFreeDemonstrator, OpenDemonstrator
from eval.collect.episode import demonstrate
from eval.collect.plan import Job
from eval.collect.store import EpisodeStore
from eval.policies.base import LoadedPolicy
from eval.policies.scripted import Scripted, scripted_policy
from eval.policies.serving import PolicySource, served
from eval.records.schema import Outcome
from eval.rollout.episode import WorldCache
from eval.rollout.execution import ActionError
from sim_envs.suite import Suite
from sim_envs.workers import JobQueue, LostJob, WorkerConnection, run_in_workers
from sim_envs.world import PhysicsError, World


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simulation:
    """The suites' worlds and the configured policy. It is sent to every worker.

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

        def scripted(suite: Suite, world: World) -> Scripted:
            """The policy without texts."""
            make = functools.partial(scripted_policy, self.kind, suite, world, self.noise)
            return Scripted(suite.interface, make, world)

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
class DemonstrationPlayer:
    """Plays demonstrations and stores them, in this process or in workers.

    Attributes:
        simulation: Worlds and demonstrators.
        store: The finished episodes.
        config: What to play.
        policy: In a worker, connects to the policy with a model.
    """

    simulation: Simulation
    store: EpisodeStore
    config: CollectConfig
    policy: PolicySource | None = None

    def play(
        self, jobs: Sequence[Job], model: LoadedPolicy | None, *, workers: int, interrupts: DeferredSignals
    ) -> Iterator[EpisodeReport]:
        """Play the episodes, in `workers` processes if there are several, and yield reports as they finish.

        Raises:
            UsageError: A worker cannot start. Finished episodes are kept.
            KeyboardInterrupt: Ctrl-C; the current episodes are lost.
        """
        if workers == 1:
            demonstrator = self.simulation.demonstrator(model)
            feedback = None if model is None else model.feedback
            with self.simulation.worlds() as worlds:
                for job in jobs:
                    yield self._play(job, worlds, demonstrator, interrupts, feedback)
            return
        queue = JobQueue(jobs, task=lambda job: (job.key.suite, job.key.task_id), episode=lambda job: job.key)
        interfaces = [job.plan.suite.interface for job in jobs]
        with served([model] if model else [], interfaces, worlds=workers) as (server, sources):
            player = dataclasses.replace(self, policy=sources[0] if sources else None)
            ended = run_in_workers(player, queue, workers=workers, check=interrupts.check, handler=server)
            with contextlib.closing(ended):
                for job, report in ended:
                    lost = isinstance(report, LostJob)
                    yield (
                        EpisodeReport(job=job, outcome=Outcome.ERROR, error=report.reason) if lost else report
                    )

    @contextlib.contextmanager
    def open(self, connection: WorkerConnection) -> Iterator[Callable[[Job], EpisodeReport]]:
        """See `sim_envs.workers.JobRunner`."""
        with self.simulation.worlds() as worlds, DeferredSignals() as interrupts:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
            model = None if self.policy is None else self.policy.open(connection)
            demonstrator = self.simulation.demonstrator(model)
            feedback = None if self.policy is None else self.policy.feedback
            yield lambda job: self._play(job, worlds, demonstrator, interrupts, feedback)

    def _play(
        self,
        job: Job,
        worlds: WorldCache,
        demonstrator: OpenDemonstrator,
        interrupts: DeferredSignals,
        feedback: FeedbackByTask | None,
    ) -> EpisodeReport:
        """Play one episode; an exception becomes its report, unless the disk is full."""
        try:
            world = worlds.of(job.plan)
            policy = demonstrator(job.plan.suite, world)
            played = demonstrate(world, policy, job, self.config, interrupts, feedback)
            if played is None:
                self.store.add_failure(job.key)
                return EpisodeReport(job=job, outcome=Outcome.TIMEOUT)
            self.store.add(played)
            outcome = Outcome.SUCCESS if played.solved else Outcome.TIMEOUT
            return EpisodeReport(job=job, outcome=outcome, frames=played.rows.num_rows)
        except (ActionError, PhysicsError):
            worlds.discard()
            self.store.add_failure(job.key)
            return EpisodeReport(job=job, outcome=Outcome.INVALID_ACTION)
        except Exception as error:
            if is_disk_full(error):
                raise
            worlds.discard()
            return EpisodeReport(job=job, outcome=Outcome.ERROR, error=traceback.format_exc())
