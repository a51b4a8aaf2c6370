"""Plays episodes in worker processes, each with a world of its own, that share one policy in this process.

A worker has the whole of an episode: world, clock, records, video. A model stays here, where it answers many
worlds in one batch; so do classes of one's own, an object for every world. What reads the world itself (the
expert), or is somewhere else anyway (a server), is opened in every worker.
"""

import contextlib
import dataclasses
import functools
import signal
from collections.abc import Callable, Iterator, Sequence

from eval.policies.sources import PolicySource, served
from eval.records.run_folders import Run
from eval.records.schema import EpisodeResult, Outcome
from eval.rollout.clock_choice import find_clock
from eval.rollout.episode import Stage
from eval.rollout.executors.played import Play, Playable, Played, play_one, stage_of
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import EpisodePlan
from eval.rollout.recorder import EpisodeRecorder
from eval.rollout.worlds import WorldHolder
from sim_envs.job_queue import JobQueue
from sim_envs.worker_process import WorkerConnection
from sim_envs.workers import TIMEOUT_S, LostJob, run_in_workers


class WorkerLostError(RuntimeError):
    """An episode has ended two worker processes, one after the other."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processes:
    """Plays an episode in each of several worker processes at once.

    Attributes:
        num_envs: Worlds, each in a process of its own.
        timeout_s: An episode that takes longer hangs.
    """

    num_envs: int
    timeout_s: float = TIMEOUT_S

    def play(self, playable: Playable, plays: Sequence[Play], interrupts: Interrupts) -> Played:
        """See `Executor`."""
        queue = JobQueue(
            plays,
            task=lambda play: playable.task_of(play).world,
            episode=lambda play: (playable.task_of(play).world, play.key),
        )
        interfaces = [suite.interface for suite in playable.plans[0].suites.values()]
        with served(playable.policies, interfaces, worlds=self.num_envs) as (server, sources):
            player = EpisodePlayer(plans=tuple(playable.plans), runs=tuple(playable.runs), sources=sources)
            ended = run_in_workers(
                player,
                queue,
                workers=self.num_envs,
                check=interrupts.check,
                handler=server,
                timeout_s=self.timeout_s,
            )
            with contextlib.closing(ended):
                for play, result in ended:
                    yield play, _lost(play, playable, result) if isinstance(result, LostJob) else result


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodePlayer:
    """Plays episodes in a worker.

    Attributes:
        plans: All episodes of the evaluation, as each arm plays them.
        runs: The run of each arm.
        sources: Where the policy of each arm is from.
    """

    plans: tuple[EpisodePlan, ...]
    runs: tuple[Run, ...]
    sources: tuple[PolicySource, ...]

    @contextlib.contextmanager
    def open(self, connection: WorkerConnection) -> Iterator[Callable[[Play], EpisodeResult]]:
        """See `sim_envs.worker_process.JobRunner`."""
        with WorldHolder() as worlds, Interrupts() as interrupts:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one

            @functools.cache
            def stage(arm: int) -> Stage:
                config = self.runs[arm].config
                clock = find_clock(config, self.plans[arm].keys)
                return stage_of(
                    config, self.sources[arm].open(connection), clock, worlds=worlds, interrupts=interrupts
                )

            yield lambda play: play_one(
                play, self.plans[play.arm].tasks[play.task], self.runs[play.arm], stage(play.arm)
            )


def _lost(play: Play, playable: Playable, lost: LostJob) -> EpisodeResult:
    """The record of an episode that ended its process."""
    task, run = playable.task_of(play), playable.runs[play.arm]
    config = run.config.model_copy(update={"video": "none"})
    error = WorkerLostError(f"its process was lost, and the one that played it again as well: {lost.reason}")
    return EpisodeRecorder(run.folder, task, play.key, config).result(Outcome.ERROR, error)
