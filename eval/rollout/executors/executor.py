"""Executors: run the episodes of an evaluation here, in worker processes, or (`ray.py`) on a cluster."""

import abc
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

from configs.exits import DeferredSignals
from configs.schema import RunConfig
from eval.policies.base import LoadedPolicy
from eval.policies.interprocess import served
from eval.policies.opening import open_policies
from eval.policies.resolved import ResolvedPolicy
from eval.rollout.episode import (
    EpisodeJob,
    EpisodePlayer,
    LoadedVariant,
    lost_result,
    run_episode,
    worlds_of_process,
)
from oxygen.presets.policies import adapter_identity, weights_sha256
from sim_envs.workers import TIMEOUT_S, IdleWorkers, JobQueue, LostJob, run_in_workers

ResultT = TypeVar("ResultT")
Variants = Sequence[LoadedVariant[ResultT]]
Jobs = Sequence[EpisodeJob]
Played = Iterator[tuple[EpisodeJob, ResultT]]
OnBegin = Callable[[int, EpisodeJob], None]
"""Called with the index of a world and the episode that it starts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Executor(abc.ABC):
    """Runs episodes. Apart from timings, records do not depend on the executor or the number of worlds."""

    num_envs: int = 1  # number of parallel worlds
    lasting: bool = False  # whether worlds and their processes stay open for the next evaluation

    @property
    def local_worlds(self) -> int:
        """The number of worlds in this machine's memory."""
        return self.num_envs

    def open_policies(
        self, resolved: ResolvedPolicy, variants: Sequence[RunConfig], notify: Callable[[str], None]
    ) -> list[LoadedPolicy]:
        """Load the policy of each variant; see `eval.policies.opening.open_policies`.

        A lasting executor keeps the last policy of a name, for the next evaluation with the same options.
        """
        weights = weights_sha256(resolved.policy) if self.lasting else None
        if weights is None:
            return open_policies(resolved, variants, worlds=self.num_envs, notify=notify)
        adapter, options = adapter_identity(resolved.policy), [each.model_dump_json() for each in variants]
        wanted, kept = repr((weights, adapter, resolved, options, self.num_envs)), _kept_policies()
        if wanted not in kept:
            kept.clear()
            kept[wanted] = open_policies(resolved, variants, worlds=self.num_envs, notify=notify)
        return kept[wanted]

    @abc.abstractmethod
    def play(
        self, variants: Variants[ResultT], jobs: Jobs, interrupts: DeferredSignals, on_begin: OnBegin
    ) -> Played[ResultT]:
        """Run the episodes; yields each when it has ended and its query log and video are on disk.

        Raises:
            PolicyLostError: The policy does not come back.
            KeyboardInterrupt: A signal was received. Unfinished episodes leave no files.
        """


class Serial(Executor):
    """Runs episodes one after the other in this process, with one world open at a time."""

    def play(
        self, variants: Variants[ResultT], jobs: Jobs, interrupts: DeferredSignals, on_begin: OnBegin
    ) -> Played[ResultT]:
        """See `Executor`."""
        worlds = worlds_of_process()
        with contextlib.nullcontext() if self.lasting else contextlib.closing(worlds):
            for job in jobs:
                on_begin(0, job)
                yield job, run_episode(variants[job.variant], job, worlds=worlds, interrupts=interrupts)


SERIAL = Serial()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processes(Executor):
    """Runs episodes in worker processes, one world each, that share one policy in this process.

    A worker runs whole episodes: world, clock, records, video. Models stay in this process, which batches the
    queries of many worlds; so do user-defined Python policies, one object per world. Experts, which read the
    simulator, and clients of policy servers are opened in each worker.
    """

    timeout_s: float = TIMEOUT_S  # seconds after which an episode is considered hung

    def play(
        self, variants: Variants[ResultT], jobs: Jobs, interrupts: DeferredSignals, on_begin: OnBegin
    ) -> Played[ResultT]:
        """See `Executor`."""
        interfaces = [suite.interface for suite in variants[0].plan.suites.values()]
        policies = [each.policy for each in variants]
        with served(policies, interfaces, worlds=self.num_envs) as (server, blocks):
            ended = run_in_workers(
                EpisodePlayer.of(variants, blocks).open,
                queue_of(variants, jobs, on_begin),
                workers=self.num_envs,
                pool=idle_workers() if self.lasting else None,
                check=interrupts.check,
                handler=server,
                timeout_s=self.timeout_s,
            )
            with contextlib.closing(ended):
                for job, result in ended:
                    lost = isinstance(result, LostJob)
                    yield job, lost_result(variants[job.variant], job, result) if lost else result


@functools.cache
def _kept_policies() -> dict[str, list[LoadedPolicy]]:
    """The last policy of a name, keyed by everything that decides what it computes."""
    return {}


@functools.cache
def idle_workers() -> IdleWorkers:
    """The workers that wait for the next evaluation."""
    return {}


def queue_of(variants: Variants[Any], jobs: Jobs, on_begin: OnBegin) -> JobQueue[EpisodeJob]:
    """A queue of the episodes for several worlds."""

    def world(job: EpisodeJob) -> Hashable:
        return variants[job.variant].plan.tasks[job.task].world

    return JobQueue(jobs, task=world, episode=lambda job: (world(job), job.key), on_begin=on_begin)
