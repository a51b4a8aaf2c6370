"""What every executor does with an episode: it plays it in one arm, and leaves its record."""

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol

from configs.schema import RunConfig
from eval.policies.base import OpenPolicy
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult
from eval.rollout.chunks import Overlap
from eval.rollout.clock import Clock
from eval.rollout.episode import Stage, run_episode
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import EpisodePlan, TaskPlan
from eval.rollout.recorder import EpisodeRecorder
from eval.rollout.timeline import Waiting
from eval.rollout.worlds import WorldHolder
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Play:
    """One episode in one arm.

    Attributes:
        arm: Index of the arm.
        task: Index of the episode's task in the plan of the arm.
        key: The episode.
    """

    arm: int
    task: int
    key: EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Playable:
    """An evaluation that is ready to be played.

    Attributes:
        plans: All its episodes, as each arm plays them: the same tasks in the same order.
        runs: The run of each arm.
        policies: The policy of each arm.
        clocks: The clock of each arm.
    """

    plans: Sequence[EpisodePlan]
    runs: Sequence[Run]
    policies: Sequence[OpenPolicy]
    clocks: Sequence[Clock]

    def task_of(self, play: Play) -> TaskPlan:
        """The episode's task in its arm."""
        return self.plans[play.arm].tasks[play.task]

    def in_turns(self) -> Iterator[Play]:
        """Every episode in every arm, by task and world; of an episode, each arm is first in its turn."""
        first = 0
        for task, planned in enumerate(self.plans[0].tasks):
            in_world: defaultdict[Hashable, list[int]] = defaultdict(list)
            for arm, plan in enumerate(self.plans):
                in_world[plan.tasks[task].world].append(arm)
            for arms in in_world.values():
                for turn, key in enumerate(planned.keys, start=first):
                    for place in range(len(arms)):
                        yield Play(arm=arms[(turn + place) % len(arms)], task=task, key=key)
            first += len(planned.keys)


Played = Iterator[tuple[Play, EpisodeResult]]


class Executor(Protocol):
    """Plays episodes.

    Their records are the same, timings apart, whatever executor plays them, with however many worlds.
    """

    @property
    def num_envs(self) -> int:
        """Worlds that it plays at once."""

    def play(self, playable: Playable, plays: Sequence[Play], interrupts: Interrupts) -> Played:
        """Play the episodes, yielding each as it ends; its query log and its video are on disk then.

        Raises:
            PolicyLostError: The policy is gone for good.
            KeyboardInterrupt: The interrupts have noted one. Of episodes that were being played nothing
                is left.
        """


def stage_of(
    config: RunConfig, policy: OpenPolicy, clock: Clock, *, worlds: WorldHolder, interrupts: Interrupts
) -> Stage:
    """Where the episodes of an arm are played."""
    return Stage(
        worlds=worlds,
        policy=policy,
        clock=clock,
        waiting=Waiting(config.while_waiting),
        overlap=Overlap(config.overlap),
        interrupts=interrupts,
    )


def play_one(play: Play, task: TaskPlan, run: Run, stage: Stage) -> EpisodeResult:
    """Play an episode and leave its files; the record is the caller's to append."""
    return run_episode(stage, task, play.key, EpisodeRecorder(run.folder, task, play.key, run.config))
