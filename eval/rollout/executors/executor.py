"""The `Executor` protocol: runs the episodes of an evaluation."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Protocol

from configs.schema import RunConfig
from eval.policies.base import LoadedPolicy
from eval.policies.resolved import ResolvedPolicy
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult
from eval.rollout.clock import Clock
from eval.rollout.executors.player import EpisodeJob
from eval.rollout.interrupts import DeferredSignals
from eval.rollout.plan import EpisodePlan, TaskPlan
from sim_envs.workers import JobQueue


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedEvaluation:
    """An evaluation with loaded policies and existing folders; the fields hold one item per variant.

    Attributes:
        plans: Their tasks are the same, in the same order.
        on_begin: Called with the index of a world and the episode that it starts.
    """

    plans: Sequence[EpisodePlan]
    runs: Sequence[Run]
    policies: Sequence[LoadedPolicy]
    clocks: Sequence[Clock]
    on_begin: Callable[[int, EpisodeJob], None] = lambda *_: None

    def queue(self, jobs: Sequence[EpisodeJob]) -> JobQueue[EpisodeJob]:
        """A queue of the episodes for several worlds."""
        return JobQueue(
            jobs,
            task=lambda job: self.task_of(job).world,
            episode=lambda job: (self.task_of(job).world, job.key),
            on_begin=self.on_begin,
        )

    def task_of(self, job: EpisodeJob) -> TaskPlan:
        """The plan of the episode's task."""
        return self.plans[job.variant].tasks[job.task]

    def interleaved(self) -> Iterator[EpisodeJob]:
        """Every episode in every variant, by task and world; the variant that goes first rotates."""
        first = 0
        for task, planned in enumerate(self.plans[0].tasks):
            in_world: defaultdict[Hashable, list[int]] = defaultdict(list)
            for variant, plan in enumerate(self.plans):
                in_world[plan.tasks[task].world].append(variant)
            for variants in in_world.values():
                for turn, key in enumerate(planned.keys, start=first):
                    for place in range(len(variants)):
                        yield EpisodeJob(variant=variants[(turn + place) % len(variants)], task=task, key=key)
            first += len(planned.keys)


Played = Iterator[tuple[EpisodeJob, EpisodeResult]]


class Executor(Protocol):
    """Runs episodes.

    Apart from timings, records do not depend on the executor or the number of worlds.
    """

    @property
    def num_envs(self) -> int:
        """Number of parallel worlds."""

    def open_policies(
        self, resolved: ResolvedPolicy, variants: Sequence[RunConfig], notify: Callable[[str], None]
    ) -> list[LoadedPolicy]:
        """Load the policy of each variant; see `eval.policies.opening.open_policies`."""

    def play(
        self, prepared: PreparedEvaluation, jobs: Sequence[EpisodeJob], interrupts: DeferredSignals
    ) -> Played:
        """Run the episodes; yields each when it has ended and its query log and video are on disk.

        Raises:
            PolicyLostError: The policy does not come back.
            KeyboardInterrupt: A signal was received. Unfinished episodes leave no files.
        """
