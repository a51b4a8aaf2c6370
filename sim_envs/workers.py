"""Plays jobs in worker processes, each with worlds of its own: spawned, watched, and replaced.

A worker plays one job at a time and may ask for something meanwhile, such as what a policy does. One that
dies or hangs is replaced, and its job is played once more.
"""

import contextlib
import dataclasses
import math
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Generator, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

from sim_envs.blas import environment_variable
from sim_envs.gl import rendering_device
from sim_envs.job_queue import JobQueue
from sim_envs.worker_process import OUT_OF_MEMORY, Finished, Player, Raised, Ready, run_worker

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

TIMEOUT_S = 3600.0
"""After so long a job counts as hung, unless told otherwise."""

_STARTING_S = 600.0
"""What a process may take to start in."""
OPENINGS = 3
"""A worker that is lost so many times in a row before it is ready for a job is not to be had."""
_LOOK_EVERY_S = 0.3
"""How long Ctrl-C, or a worker that hangs, may go unnoticed."""
_GOODBYE_S = 5.0
"""What workers have to end in once they are told to."""


@runtime_checkable
class Attendant(Protocol):
    """Answers what workers ask."""

    def asked(self, worker: int, message: Any, answer: Callable[[object], None]) -> None:
        """Note what a worker says; `answer` sends it something, now or later."""

    def left(self, worker: int) -> None:
        """A worker's job is over, one way or the other, and with it its questions."""

    def attend(self) -> float:
        """Do one piece of work, if there is any. Returns the seconds until there may be another one."""


class _Nobody:
    """The attendant of workers that ask nothing."""

    def asked(self, worker: int, message: Any, answer: Callable[[object], None]) -> None:
        del answer
        raise AssertionError(f"worker {worker} asks {message!r}, and nobody is there to answer")

    def left(self, worker: int) -> None:
        pass

    def attend(self) -> float:
        return math.inf


_NOBODY = _Nobody()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LostJob:
    """A job that ended two workers, or that no worker got as far as.

    Attributes:
        reason: What became of the last one.
    """

    reason: str


def play_in_workers(
    player: Player[JobT, ResultT],
    queue: JobQueue[JobT],
    *,
    workers: int,
    check: Callable[[], None],
    attendant: Attendant = _NOBODY,
    timeout_s: float = TIMEOUT_S,
) -> Generator[tuple[JobT, ResultT | LostJob], None, None]:
    """Play jobs in as many processes, yielding them with their results as they end, in no order.

    Args:
        player: What every worker does.
        queue: The jobs.
        workers: How many processes.
        check: Called several times a second; what it raises ends the workers.
        attendant: Answers what workers ask, if they ask anything.
        timeout_s: A job that takes longer hangs: its worker is replaced.

    Raises:
        UsageError: A worker cannot begin.
        Exception: Whatever else the player lets through.
    """
    with _Crew(player, min(workers, len(queue))) as crew:
        for worker in crew.workers:
            worker.begin(queue)
        while any(worker.is_busy for worker in crew.workers):
            check()
            for worker in crew.with_news(min(attendant.attend(), _LOOK_EVERY_S), timeout_s):
                news = worker.news()
                if isinstance(news, Raised):
                    raise news.error
                if isinstance(news, Ready):
                    worker.is_open()
                    continue
                if not isinstance(news, Finished | LostJob):
                    attendant.asked(worker.number, news, worker.send)
                    continue
                attendant.left(worker.number)
                if isinstance(news, LostJob) and worker.is_replaced(queue):
                    continue
                yield worker.job, news.result if isinstance(news, Finished) else news
                worker.begin(queue)


class _Crew(Generic[JobT, ResultT]):
    """All workers, from when they are started until they have ended."""

    def __init__(self, player: Player[JobT, ResultT], count: int) -> None:
        self.workers = [_Worker(player, number) for number in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for worker in self.workers:
            worker.dismiss(at_once=kind is not None)
        deadline = time.monotonic() + _GOODBYE_S
        for worker in self.workers:
            worker.see_off(deadline)

    def with_news(self, patience_s: float, timeout_s: float) -> Iterator["_Worker"]:
        """Busy workers that have said something, have died, or take too long."""
        busy = [worker for worker in self.workers if worker.is_busy]
        ready = set(wait([end for worker in busy for end in worker.ends], timeout=patience_s))
        for worker in busy:
            if ready.intersection(worker.ends) or worker.hangs(timeout_s):
                yield worker


class _Worker:
    """One process after the other, seen from the one that started them.

    Attributes:
        number: From 0 on.
        job: What it plays, or has just played.
        is_busy: Whether it plays something.
    """

    def __init__(self, player: Player[Any, Any], number: int) -> None:
        self.number = number
        self.job: Any = None
        self.is_busy = self._has_lost = False
        self._lost_openings = 0
        self._player = player
        self._device = rendering_device(number)
        self._began_s = 0.0
        self._connection, self._process = self._started()

    @property
    def ends(self) -> tuple[Connection, int]:
        """What to wait for: its messages, its end."""
        return self._connection, self._process.sentinel

    def is_open(self) -> None:
        """Note that it has started: its job begins now."""
        self._is_open, self._began_s = True, time.monotonic()
        self._lost_openings = 0

    def hangs(self, timeout_s: float) -> bool:
        """Whether it takes too long, and has been ended for that."""
        limit_s = timeout_s if self._is_open else _STARTING_S
        hangs = time.monotonic() - self._began_s > limit_s
        if hangs:
            self.kill(f"it had not {'ended' if self._is_open else 'started'} after {limit_s:g} s")
        return hangs

    def begin(self, queue: JobQueue[Any], *, again: bool = False) -> None:
        """Have it play the next job, if there is one."""
        job = queue.next_for(self.number)
        self.is_busy = job is not None
        if job is not None:
            self.job, self._has_lost, self._began_s = job, again, time.monotonic()
            self.send(job)

    def send(self, message: object) -> None:
        """Send it something; that it is gone is told by `news`."""
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def news(self) -> Any:
        """What it says: a result, a question, or that it is gone."""
        try:
            if self._connection.poll():
                return self._connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            pass
        self._process.join(_GOODBYE_S)
        return LostJob(reason=self._reason or _ending(self._process.exitcode))

    def kill(self, reason: str) -> None:
        """End it, whatever it is doing."""
        self._reason = reason
        self._process.kill()
        self._process.join()

    def is_replaced(self, queue: JobQueue[Any]) -> bool:
        """Start another process in its place. Returns whether that plays the lost job again.

        It does if the job was lost for the first time. One that had not begun was not lost, unless no process
        gets as far as that.
        """
        had_begun = self._is_open
        self.kill("")
        self._connection.close()
        self._connection, self._process = self._started()
        self._lost_openings += not had_begun
        plays_again = not self._has_lost if had_begun else self._lost_openings < OPENINGS
        if plays_again:
            queue.put_back(self.number, self.job)
            self.begin(queue, again=self._has_lost or had_begun)
        else:
            self._lost_openings = 0
        return plays_again

    def dismiss(self, *, at_once: bool) -> None:
        """Tell it to end: when it has finished what it does, or now."""
        self._connection.close()
        if at_once:
            self._process.terminate()

    def see_off(self, deadline_s: float) -> None:
        """Wait for its end, by `time.monotonic`, and insist."""
        self._process.join(max(0.0, deadline_s - time.monotonic()))
        if self._process.is_alive():
            self.kill("")

    def _started(self) -> tuple[Connection, BaseProcess]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=run_worker, args=(self._player, self.number, theirs, os.getpid()), daemon=True
        )
        with contextlib.ExitStack() as environment:
            if self._device is not None:
                environment.enter_context(environment_variable("MUJOCO_EGL_DEVICE_ID", str(self._device)))
            process.start()
        theirs.close()  # so that its end is noticed here
        self._is_open, self._reason = False, ""
        return ours, process


def _ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is not None and code < 0:
        hint = ", as for want of memory" if -code == signal.SIGKILL else ""
        return f"it was ended by {signal.Signals(-code).name}{hint}"
    return "it ran out of memory" if code == OUT_OF_MEMORY else f"it ended with exit code {code}"
