"""Plays episodes: here, or in several processes, each with a simulator and a policy of its own.

Processes are spawned, as rendering contexts require. One that has a task loaded is given that task's episodes
first, since loading takes seconds.
"""

import contextlib
import dataclasses
import multiprocessing
import signal
import traceback
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Protocol

from configs.errors import UsageError
from configs.schema import CollectConfig
from eval.collect.demonstrator import OpenDemonstrator
from eval.collect.episode import Demonstration, Failure, demonstrate
from eval.collect.plan import Job
from eval.collect.store import EpisodeStore
from eval.records.schema import Outcome
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import TaskPlan
from eval.rollout.rollout import ActionError
from sim_envs.world import PhysicsError, World

_PATIENCE_S = 0.3
"""How long Ctrl-C may go unnoticed."""


class Worlds(Protocol):
    """Opens worlds, one at a time."""

    def of(self, plan: TaskPlan) -> World:
        """The world of that task."""

    def discard(self) -> None:
        """Close what is open."""


class Setting(Protocol):
    """Where a worker gets its world and its policy from. It is sent to every worker."""

    def worlds(self) -> AbstractContextManager[Worlds]:
        """Opens worlds."""

    def demonstrator(self) -> OpenDemonstrator:
        """The policy, ready to act."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """How an episode went.

    Attributes:
        job: Which.
        outcome: A success is in the store as a demonstration, a timeout as a failure unless failures are
            kept, an invalid action as a failure; an error is nowhere.
        frames: Frames of what is kept.
        error: The traceback of an error.
    """

    job: Job
    outcome: Outcome
    frames: int = 0
    error: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What every worker is told.

    Attributes:
        setting: Where its world and its policy come from.
        store: Where its episodes go.
        config: How they are written down.
    """

    setting: Setting
    store: EpisodeStore
    config: CollectConfig


def play_here(work: Work, jobs: Sequence[Job], *, interrupts: Interrupts) -> Iterator[Report]:
    """Play the episodes in this process, one after the other.

    Raises:
        KeyboardInterrupt: The episode that was being played is lost.
    """
    with work.setting.worlds() as worlds:
        player = _Player(work, worlds, interrupts)
        for job in jobs:
            yield player.play(job)


def play_in_workers(
    work: Work, jobs: Sequence[Job], *, workers: int, interrupts: Interrupts
) -> Iterator[Report]:
    """Play the episodes in as many processes, yielding as they end, in no order.

    Raises:
        UsageError: A worker cannot begin, or died. What has been played to its end is kept.
        KeyboardInterrupt: The episodes that were being played are lost.
    """
    queue = _Queue(jobs)
    with contextlib.ExitStack() as stack:
        crew = [stack.enter_context(_Worker(work)) for _ in range(min(workers, len(jobs)))]
        busy: dict[object, _Worker] = {each.connection: each for each in crew if each.begin(queue)}
        while busy:
            interrupts.check()
            for worker in [
                busy[each] for each in wait([each.connection for each in busy.values()], timeout=_PATIENCE_S)
            ]:
                yield worker.report()
                if not worker.begin(queue):
                    del busy[worker.connection]


class _Queue:
    """The episodes nobody plays yet, by task."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._waiting: defaultdict[tuple[str, int], list[Job]] = defaultdict(list)
        self._at: defaultdict[tuple[str, int], int] = defaultdict(int)
        for job in reversed(jobs):
            self._waiting[_task(job)].append(job)

    def next_after(self, job: Job | None) -> Job | None:
        """An episode of the same task, else of the task with the most left for each who is at it."""
        if job is not None and self._waiting[_task(job)]:
            return self._waiting[_task(job)].pop()
        if job is not None:
            self._at[_task(job)] -= 1
        left = {task: jobs for task, jobs in self._waiting.items() if jobs}
        if not left:
            return None
        task = max(left, key=lambda task: len(left[task]) / (1 + self._at[task]))
        self._at[task] += 1
        return left[task].pop()


def _task(job: Job) -> tuple[str, int]:
    return job.key.suite, job.key.task_id


class _Worker:
    """One process, seen from the one that started it."""

    def __init__(self, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_main, args=(work, theirs), daemon=True)
        self._process.start()
        theirs.close()  # so that its end is noticed here
        self._job: Job | None = None

    def begin(self, queue: _Queue) -> bool:
        """Have it play the next episode; False if there is none."""
        self._job = queue.next_after(self._job)
        with contextlib.suppress(BrokenPipeError):  # which `report` will notice
            self.connection.send(self._job)
        return self._job is not None

    def report(self) -> Report:
        """How its episode went."""
        try:
            report: Report | UsageError = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._death() from None
        if isinstance(report, UsageError):
            raise report
        return report

    def _death(self) -> UsageError:
        self._process.join()
        where = self._job.key.episode if self._job else "its end"
        return UsageError(
            f"a worker died at {where} with exit code {self._process.exitcode}; the same command "
            "completes the rest, with fewer --workers if memory ran short"
        )

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.connection.close()
        if kind is not None:
            self._process.terminate()
        self._process.join()


def _main(work: Work, connection: Connection) -> None:
    """The program of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that started us
    serve(work, connection)


def serve(work: Work, connection: Connection) -> None:
    """The other side of `play_in_workers`: play the jobs that come until None comes.

    Args:
        work: What there is to know.
        connection: Gives jobs and takes reports, or the `UsageError` for which none can be played.
    """
    with work.setting.worlds() as worlds, contextlib.suppress(EOFError, BrokenPipeError):
        try:
            player = _Player(work, worlds, Interrupts())
        except UsageError as error:
            connection.send(error)
            return
        while (job := connection.recv()) is not None:
            connection.send(player.play(job))


class _Player:
    """Plays episodes one after the other and puts them into the store."""

    def __init__(self, work: Work, worlds: Worlds, interrupts: Interrupts) -> None:
        self._work = work
        self._worlds = worlds
        self._interrupts = interrupts
        self._demonstrator = work.setting.demonstrator()

    def play(self, job: Job) -> Report:
        """Play one. Whatever goes wrong in it becomes the report."""
        try:
            world = self._worlds.of(job.plan)
            policy = self._demonstrator(job.plan.suite, world)
            played = demonstrate(world, policy, job, self._work.config, self._interrupts)
            if isinstance(played, Demonstration):
                self._work.store.keep(played)
                outcome = Outcome.SUCCESS if played.solved else Outcome.TIMEOUT
                return Report(job=job, outcome=outcome, frames=played.rows.num_rows)
            self._work.store.note(played)
            return Report(job=job, outcome=Outcome.TIMEOUT)
        except (ActionError, PhysicsError):
            self._worlds.discard()
            self._work.store.note(Failure(job=job))
            return Report(job=job, outcome=Outcome.INVALID_ACTION)
        except Exception:  # noqa: BLE001 - the boundary around an episode
            self._worlds.discard()
            return Report(job=job, outcome=Outcome.ERROR, error=traceback.format_exc())
