"""The contract of executors: they play the episodes of an evaluation."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from configs.schema import RunConfig
from eval.policies.base import OpenPolicy
from eval.policies.resolved import ResolvedPolicy
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult
from eval.rollout.clock import Clock
from eval.rollout.executors.player import Play
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import EpisodePlan
from sim_envs.job_queue import JobQueue


@dataclasses.dataclass(frozen=True, kw_only=True)
class Playable:
    """An evaluation that is ready to be played.

    Attributes:
        plan: All its episodes.
        runs: The run of each arm.
        policies: The policy of each arm.
        clocks: The clock of each arm.
        on_begin: Told which world, from 0 on, begins what.
    """

    plan: EpisodePlan
    runs: Sequence[Run]
    policies: Sequence[OpenPolicy]
    clocks: Sequence[Clock]
    on_begin: Callable[[int, Play], None] = lambda *_: None

    def queue(self, plays: Sequence[Play]) -> JobQueue[Play]:
        """The episodes in the order in which several worlds play them."""
        return JobQueue(
            plays, task=lambda play: play.task, episode=lambda play: play.key, on_begin=self.on_begin
        )


Played = Iterator[tuple[Play, EpisodeResult]]


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
        """Open the policy of every arm where it is to act; see `eval.policies.opening.open_policies`."""

    def play(self, playable: Playable, plays: Sequence[Play], interrupts: Interrupts) -> Played:
        """Play the episodes, yielding each as it ends; its query log and its video are on disk then.

        Raises:
            PolicyLostError: The policy is gone for good.
            KeyboardInterrupt: The interrupts have noted one. Of episodes that were being played nothing
                is left.
        """
