"""What every executor does with an episode: it plays it in one arm, and leaves its record."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

from configs.schema import RunConfig
from eval.policies.base import OpenPolicy
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult
from eval.rollout.chunks import Overlap
from eval.rollout.clock import Clock
from eval.rollout.episode import Stage, run_episode
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import EpisodePlan
from eval.rollout.recorder import EpisodeRecorder
from eval.rollout.timeline import Waiting
from eval.rollout.worlds import WorldHolder
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Play:
    """One episode in one arm.

    Attributes:
        arm: Index of the arm.
        task: Index of the episode's task in the plan.
        key: The episode.
    """

    arm: int
    task: int
    key: EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Playable:
    """An evaluation that is ready to be played.

    Attributes:
        plan: All its episodes.
        runs: The run of each arm.
        policies: The policy of each arm.
        clocks: The clock of each arm.
    """

    plan: EpisodePlan
    runs: Sequence[Run]
    policies: Sequence[OpenPolicy]
    clocks: Sequence[Clock]


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


def play_one(play: Play, plan: EpisodePlan, run: Run, stage: Stage) -> EpisodeResult:
    """Play an episode and leave its files; the record is the caller's to append."""
    task = plan.tasks[play.task]
    return run_episode(stage, task, play.key, EpisodeRecorder(run.folder, task, play.key, run.config))
