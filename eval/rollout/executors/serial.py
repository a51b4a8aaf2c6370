"""Plays one episode after the other in this process."""

from collections.abc import Callable, Sequence

from configs.schema import RunConfig
from eval.policies.base import OpenPolicy
from eval.policies.opening import open_policies
from eval.policies.resolved import ResolvedPolicy
from eval.rollout.executors.executor import Playable, Played
from eval.rollout.executors.player import Play, play_one, stage_of
from eval.rollout.interrupts import Interrupts
from eval.rollout.worlds import WorldHolder


class Serial:
    """Plays one episode after the other, in the world of one task at a time."""

    num_envs = 1

    def open_policies(
        self, resolved: ResolvedPolicy, variants: Sequence[RunConfig], notify: Callable[[str], None]
    ) -> list[OpenPolicy]:
        """See `Executor`."""
        return open_policies(resolved, variants, notify=notify)

    def play(self, playable: Playable, plays: Sequence[Play], interrupts: Interrupts) -> Played:
        """See `Executor`."""
        variants = zip(playable.runs, playable.policies, playable.clocks, strict=True)
        with WorldHolder() as worlds:
            stages = [
                stage_of(run.config, policy, clock, worlds=worlds, interrupts=interrupts)
                for run, policy, clock in variants
            ]
            for play in plays:
                playable.on_begin(0, play)
                yield (
                    play,
                    play_one(play, playable.task_of(play), playable.runs[play.variant], stages[play.variant]),
                )


SERIAL = Serial()
