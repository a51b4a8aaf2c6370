"""Runs episodes one after the other in this process."""

from collections.abc import Callable, Sequence

from configs.schema import RunConfig
from eval.policies.base import LoadedPolicy
from eval.policies.opening import open_policies
from eval.policies.resolved import ResolvedPolicy
from eval.rollout.executors.executor import Played, PreparedEvaluation
from eval.rollout.executors.player import EpisodeJob, episode_context, run_job
from eval.rollout.interrupts import DeferredSignals
from eval.rollout.worlds import WorldCache


class Serial:
    """Runs episodes one after the other, with one world open at a time."""

    num_envs = 1

    def open_policies(
        self, resolved: ResolvedPolicy, variants: Sequence[RunConfig], notify: Callable[[str], None]
    ) -> list[LoadedPolicy]:
        """See `Executor`."""
        return open_policies(resolved, variants, notify=notify)

    def play(
        self, prepared: PreparedEvaluation, jobs: Sequence[EpisodeJob], interrupts: DeferredSignals
    ) -> Played:
        """See `Executor`."""
        variants = zip(prepared.runs, prepared.policies, prepared.clocks, strict=True)
        with WorldCache() as worlds:
            contexts = [
                episode_context(run.config, policy, clock, worlds=worlds, interrupts=interrupts)
                for run, policy, clock in variants
            ]
            for job in jobs:
                prepared.on_begin(0, job)
                run, context = prepared.runs[job.variant], contexts[job.variant]
                yield job, run_job(job, prepared.task_of(job), run, context)


SERIAL = Serial()
