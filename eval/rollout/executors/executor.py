"""The contract of executors: they play the episodes of an evaluation."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Protocol

from configs.schema import RunConfig
from eval.policies.base import OpenPolicy
from eval.policies.resolved import ResolvedPolicy
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult
from eval.rollout.clock import Clock
from eval.rollout.executors.player import EpisodeJob
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import EpisodePlan, TaskPlan
from sim_envs.job_queue import JobQueue


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedEvaluation:
    """An evaluation that is ready to be played.

    Attributes:
        plans: All its episodes, as each variant plays them: the same tasks in the same order.
        runs: The run of each variant.
        policies: The policy of each variant.
        clocks: The clock of each variant.
        on_begin: Told which world, from 0 on, begins what.
    """

    plans: Sequence[EpisodePlan]
    runs: Sequence[Run]
    policies: Sequence[OpenPolicy]
    clocks: Sequence[Clock]
    on_begin: Callable[[int, EpisodeJob], None] = lambda *_: None

    def queue(self, jobs: Sequence[EpisodeJob]) -> JobQueue[EpisodeJob]:
        """The episodes in the order in which several worlds play them."""
        return JobQueue(
            jobs,
            task=lambda job: self.task_of(job).world,
            episode=lambda job: (self.task_of(job).world, job.key),
            on_begin=self.on_begin,
        )

    def task_of(self, job: EpisodeJob) -> TaskPlan:
        """The episode's task in its variant."""
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
    """Plays episodes.

    Their records are the same, timings apart, whatever executor plays them, with however many worlds.
    """

    @property
    def num_envs(self) -> int:
        """Worlds that it plays at once."""

    def open_policies(
        self, resolved: ResolvedPolicy, variants: Sequence[RunConfig], notify: Callable[[str], None]
    ) -> list[OpenPolicy]:
        """Open the policy of every variant where it is to act; see `eval.policies.opening.open_policies`."""

    def play(
        self, prepared: PreparedEvaluation, jobs: Sequence[EpisodeJob], interrupts: Interrupts
    ) -> Played:
        """Play the episodes, yielding each as it ends; its query log and its video are on disk then.

        Raises:
            PolicyLostError: The policy is gone for good.
            KeyboardInterrupt: The interrupts have noted one. Of episodes that were being played nothing
                is left.
        """
