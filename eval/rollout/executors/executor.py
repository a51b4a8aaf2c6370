"""Executors: run the episodes of an evaluation here, in worker processes, or (`ray.py`) on a cluster."""

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from configs.cli import format_option
from configs.exits import DeferredSignals
from configs.schema import ExecutionConfig, RunConfig
from contracts.errors import UsageError
from eval.policies.base import LoadedPolicy
from eval.policies.interprocess import served
from eval.policies.resolved import ResolvedPolicy, open_policies
from eval.rollout.episode import EpisodeJob, EpisodePlayer, Variant, WorldCache, lost_result, run_episode
from sim_envs.workers import TIMEOUT_S, JobQueue, LostJob, check_memory, run_in_workers

ResultT = TypeVar("ResultT")
Variants = Sequence[Variant[ResultT]]
Jobs = Sequence[EpisodeJob]
Played = Iterator[tuple[EpisodeJob, ResultT]]
OnBegin = Callable[[int, EpisodeJob], None]
"""Called with the index of a world and the episode that it starts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Executor(abc.ABC):
    """Runs episodes. Apart from timings, records do not depend on the executor or the number of worlds."""

    num_envs: int = 1  # number of parallel worlds

    @property
    def local_worlds(self) -> int:
        """How many of them are in this machine's memory."""
        return self.num_envs

    def open_policies(
        self, resolved: ResolvedPolicy, variants: Sequence[RunConfig], notify: Callable[[str], None]
    ) -> list[LoadedPolicy]:
        """Load the policy of each variant; see `eval.policies.resolved.open_policies`."""
        return open_policies(resolved, variants, worlds=self.num_envs, notify=notify)

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
        with contextlib.closing(WorldCache()) as worlds:
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
                check=interrupts.check,
                handler=server,
                timeout_s=self.timeout_s,
            )
            with contextlib.closing(ended):
                for job, result in ended:
                    lost = isinstance(result, LostJob)
                    yield job, lost_result(variants[job.variant], job, result) if lost else result


def queue_of(variants: Variants[Any], jobs: Jobs, on_begin: OnBegin) -> JobQueue[EpisodeJob]:
    """A queue of the episodes for several worlds."""

    def world(job: EpisodeJob) -> tuple[str, int]:
        return variants[job.variant].plan.tasks[job.task].world

    return JobQueue(jobs, task=world, episode=lambda job: (world(job), job.key), on_begin=on_begin)


def choose_executor(config: ExecutionConfig) -> Executor:
    """The executor of an evaluation.

    Raises:
        UsageError: The executor supports one world only, an option is for another one, memory is too small,
            or the cluster is not found.
        ModuleNotFoundError: Ray is not installed.
    """
    num_envs, episode_timeout, ray_address = config.num_envs, config.episode_timeout, config.ray_address
    name = config.executor or ("serial" if num_envs == 1 else "processes")
    if ray_address is not None and name != "ray":
        raise UsageError(
            f"--ray-address {ray_address} is for --executor ray, and this is {name}; leave it out"
        )
    if name == "serial":
        useless = {"num_envs": num_envs if num_envs > 1 else None, "episode_timeout": episode_timeout}
        for option, value in useless.items():
            if value is not None:
                raise UsageError(
                    f"{format_option(option, value)} needs worker processes, and executor serial runs one "
                    "world in this process; leave it out, or add --executor processes"
                )
        return SERIAL
    if name == "ray" and config.query_timeout is not None:
        raise UsageError(
            f"--query-timeout {config.query_timeout:g} has no effect with executor ray; leave it out, or "
            "give --episode-timeout, which ends the episode of a hanging query"
        )
    timeout_s = episode_timeout or TIMEOUT_S
    if name == "processes" or ray_address == "local":
        check_memory(num_envs)
    if name == "processes":
        return Processes(num_envs=num_envs, timeout_s=timeout_s)
    from eval.rollout.executors.ray import RayCluster, connect  # the package ray is optional

    connect(ray_address or "auto", worlds=num_envs)
    return RayCluster(num_envs=num_envs, timeout_s=timeout_s)


def batch_size_for(num_envs: int) -> int:
    """Default batch size: half of the worlds, so that physics of one half overlaps the model of the other."""
    return max(1, -(-num_envs // 2))
