"""Plays one episode after the other in this process."""

from collections.abc import Sequence

from eval.rollout.executors.played import Play, Playable, Played, play_one, stage_of
from eval.rollout.interrupts import Interrupts
from eval.rollout.worlds import WorldHolder


class Serial:
    """Plays one episode after the other, in the world of one task at a time."""

    num_envs = 1

    def play(self, playable: Playable, plays: Sequence[Play], interrupts: Interrupts) -> Played:
        """See `Executor`."""
        arms = zip(playable.runs, playable.policies, playable.clocks, strict=True)
        with WorldHolder() as worlds:
            stages = [
                stage_of(run.config, policy, clock, worlds=worlds, interrupts=interrupts)
                for run, policy, clock in arms
            ]
            for play in plays:
                yield play, play_one(play, playable.task_of(play), playable.runs[play.arm], stages[play.arm])


SERIAL = Serial()
