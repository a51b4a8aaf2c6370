"""Runs episodes in worker processes, one world each, that share one policy in this process.

A worker runs whole episodes: world, clock, records, video. Models stay in this process, which batches the
queries of many worlds; so do user-defined Python policies, one object per world. Experts, which read the
simulator, and clients of policy servers are opened in each worker.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence

from configs.schema import RunConfig
from eval.policies.base import LoadedPolicy
from eval.policies.opening import open_policies
from eval.policies.resolved import ResolvedPolicy
from eval.policies.sources import served
from eval.rollout.executors.executor import Played, PreparedEvaluation
from eval.rollout.executors.player import EpisodeJob, EpisodePlayer, lost_record
from eval.rollout.interrupts import DeferredSignals
from sim_envs.workers import TIMEOUT_S, LostJob, run_in_workers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processes:
    """Runs episodes in parallel worker processes.

    Attributes:
        num_envs: Number of worker processes.
        timeout_s: Seconds after which an episode is considered hung.
    """

    num_envs: int
    timeout_s: float = TIMEOUT_S

    def open_policies(
        self, resolved: ResolvedPolicy, variants: Sequence[RunConfig], notify: Callable[[str], None]
    ) -> list[LoadedPolicy]:
        """See `Executor`."""
        return open_policies(resolved, variants, worlds=self.num_envs, notify=notify)

    def play(
        self, prepared: PreparedEvaluation, jobs: Sequence[EpisodeJob], interrupts: DeferredSignals
    ) -> Played:
        """See `Executor`."""
        queue = prepared.queue(jobs)
        interfaces = [suite.interface for suite in prepared.plans[0].suites.values()]
        with served(prepared.policies, interfaces, worlds=self.num_envs) as (server, sources):
            player = EpisodePlayer(plans=tuple(prepared.plans), runs=tuple(prepared.runs), sources=sources)
            ended = run_in_workers(
                player,
                queue,
                workers=self.num_envs,
                check=interrupts.check,
                handler=server,
                timeout_s=self.timeout_s,
            )
            with contextlib.closing(ended):
                for job, result in ended:
                    task, run = prepared.task_of(job), prepared.runs[job.variant]
                    yield job, lost_record(job, task, run, result) if isinstance(result, LostJob) else result
