"""Runs one episode, here or in a worker, and turns failures inside it into records. Imports no JAX."""

import contextlib
import dataclasses
import functools
import signal
from collections.abc import Callable, Hashable, Iterator, Sequence
from multiprocessing.util import Finalize
from typing import Generic, Protocol, Self, TypeVar

from configs.exits import DeferredSignals, is_disk_full
from contracts.episode import EpisodeKey, Outcome
from contracts.query import QueryRecord
from contracts.text import EpisodeEnd
from contracts.text_source import OWN
from eval.policies.base import LoadedPolicy, Policy, PolicyLostError
from eval.policies.interprocess import open_in_worker
from eval.records.run_folders import Run
from eval.rollout.feedback import EpisodeFeedback
from eval.rollout.plan import EpisodePlan, TaskPlan
from eval.rollout.pricing import UNCHARGED, Pricing
from eval.rollout.rollout import ActionError, rollout
from sim_envs.suite import Suite
from sim_envs.workers import LostJob, WorkerConnection
from sim_envs.world import PhysicsError, TaskError, World, perturbed_world

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Recorder(Protocol[ResultT_co]):
    """Records one episode and makes its result."""

    @property
    def picture_steps(self) -> int | None:
        """Control steps between pictures of the video; None without a video."""

    def begin(self, policy: Policy, suite: Suite, world: World) -> Policy:
        """Start in a world; returns the policy that plays, which is the given one or uses it."""

    def add(self, query: QueryRecord) -> None:
        """Record one query."""

    def add_episode_end(self, end: EpisodeEnd) -> None:
        """Record what the policy left unfinished."""

    def result(self, outcome: Outcome, error: BaseException | None = None) -> ResultT_co:
        """Close the files and return the result."""

    def abandon(self) -> None:
        """Delete the files of an interrupted episode."""


RecorderFactory = Callable[[Run, TaskPlan, EpisodeKey], Recorder[ResultT]]
"""Begins to record an episode. Has to be picklable."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """A run, the episodes that it plans, and the price of its queries.

    The variants of an evaluation play the same episodes, scheduled and timed in different ways.
    """

    run: Run
    plan: EpisodePlan
    pricing: Pricing = UNCHARGED


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadedVariant(Variant, Generic[ResultT]):
    """A variant with its loaded policy, and what records its episodes."""

    policy: LoadedPolicy
    record: RecorderFactory[ResultT]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeJob:
    """One episode in one variant; `variant` and `task` are indices into variants and the plan's tasks."""

    variant: int
    task: int
    key: EpisodeKey
    earlier_video: str | None = None  # of an attempt that was an error


class WorkerLostError(RuntimeError):
    """An episode crashed two worker processes."""


class WorldCache:
    """Keeps at most one world open, since a simulator and its renderer hold hundreds of megabytes."""

    def __init__(self) -> None:
        self._open: Hashable = None
        self._world: World | None = None

    def of(self, plan: TaskPlan) -> World:
        """The world of a task, in place of another one; a world without a method is a TaskError."""
        if self._world is None or self._open != plan.world:
            self.close()
            world, methods = plan.suite.open(plan.task), [name for name in vars(World) if name[0] != "_"]
            if lacking := [f"{name}()" for name in methods if not callable(getattr(world, name, None))]:
                raise TaskError(
                    f"the world of {plan.task.suite} lacks {' and '.join(lacking)} of sim_envs.world.World; "
                    "add what is missing"
                )
            self._world, self._open = world, plan.world
        return perturbed_world(self._world, plan.protocol.perturb)

    def close(self) -> None:
        """Close the open world; the next episode opens a new one."""
        world, self._world = self._world, None
        if world is not None:
            world.close()


@functools.cache
def worlds_of_process() -> WorldCache:
    """The worlds of this process, which are closed when it ends, if not before."""
    worlds = WorldCache()
    Finalize(None, worlds.close, exitpriority=10)
    return worlds


def run_episode(
    variant: LoadedVariant[ResultT],
    job: EpisodeJob,
    *,
    worlds: WorldCache,
    interrupts: DeferredSignals,
    fatal: tuple[type[Exception], ...] = (),
) -> ResultT:
    """Run one episode, write its files and return its result.

    Actions that cannot be executed, and physics that diverges under finite ones, are failures of the policy
    (`invalid_action`); all else is an `error`, also `sys.exit`. The world is closed after either, since its
    state is undefined. Ctrl-C, a lost policy, a faulty task and `fatal`, after which the episode is played
    in another process, propagate and leave no files of the episode.
    """
    config, task = variant.run.config, variant.plan.tasks[job.task]
    recorder = variant.record(variant.run, task, job.key)
    feedback = None
    if fields := variant.policy.fields_by_task:
        feedback = EpisodeFeedback(fields, config.feedback or OWN, control_hz=task.protocol.control_hz)
    try:
        outcome = Outcome.TIMEOUT
        world, instructions = worlds.of(task), task.instructions(job.key)
        interrupts.check()
        policy = recorder.begin(variant.policy.in_world(task.suite, world), task.suite, world)
        queries = rollout(
            world,
            policy,
            job.key,
            task.suite,
            instructions,
            pricing=variant.pricing,
            while_waiting=config.while_waiting,
            overlap=config.overlap,
            picture_steps=recorder.picture_steps,
            feedback=feedback,
            history=variant.policy.history,
        )
        for query in queries:
            recorder.add(query)
            if query.success or query.failed:
                outcome = Outcome.SUCCESS if query.success else Outcome.FAILURE
            interrupts.check()
        recorder.add_episode_end(policy.finish())
        return recorder.result(outcome)
    except BaseException as error:  # the one place where failures become records
        propagates = isinstance(error, (PolicyLostError, TaskError, *fatal)) or is_disk_full(error)
        if propagates or not isinstance(error, Exception | SystemExit):
            recorder.abandon()
            raise
        worlds.close()
        invalid = isinstance(error, ActionError | PhysicsError)
        return recorder.result(Outcome.INVALID_ACTION if invalid else Outcome.ERROR, error)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodePlayer(Generic[ResultT]):
    """Runs episodes of some variants in a worker."""

    variants: tuple[LoadedVariant[ResultT], ...]  # whose policies are opened in the worker
    blocks: tuple[str, ...]  # name of each worker's `ImageBlock`; empty if images travel in messages

    @classmethod
    def of(cls, variants: Sequence[LoadedVariant[ResultT]], blocks: Sequence[str] = ()) -> Self:
        """The player to send to workers."""
        sent = [dataclasses.replace(each, policy=each.policy.described()) for each in variants]
        return cls(variants=tuple(sent), blocks=tuple(blocks))

    @contextlib.contextmanager
    def open(self, connection: WorkerConnection) -> Iterator[Callable[[EpisodeJob], ResultT]]:
        """The function that plays an episode in a worker. See `sim_envs.workers.OpenRunner`."""

        @functools.cache
        def opened(number: int) -> LoadedVariant[ResultT]:
            variant = self.variants[number]
            policy = open_in_worker(variant.policy, number, connection, self.blocks)
            return dataclasses.replace(variant, policy=policy)

        def play(job: EpisodeJob) -> ResultT:
            return run_episode(
                opened(job.variant), job, worlds=worlds, interrupts=interrupts, fatal=(MemoryError,)
            )

        worlds = worlds_of_process()  # which stay open for the next player
        with DeferredSignals() as interrupts:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
            yield play


def lost_result(variant: LoadedVariant[ResultT], job: EpisodeJob, lost: LostJob) -> ResultT:
    """The result of an episode that crashed its worker twice."""
    config = variant.run.config.model_copy(update={"video": "none"})
    run = dataclasses.replace(variant.run, config=config)
    error = WorkerLostError(f"its worker process was lost, and so was the one that retried it: {lost.reason}")
    return variant.record(run, variant.plan.tasks[job.task], job.key).result(Outcome.ERROR, error)
