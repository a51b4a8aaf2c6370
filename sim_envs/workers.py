"""Runs jobs in worker processes, each with its own worlds.

A worker runs one job at a time and may send requests meanwhile, such as a query to a policy. A worker that
dies or hangs is replaced, and its job is retried once."""

import contextlib
import ctypes
import dataclasses
import errno
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from configs.exits import how_ended, report_crashes
from configs.paths import absolute, back_where_begun, begin_in
from configs.spawning import without_main
from contracts.errors import UsageError
from sim_envs.blas import environment_variable
from sim_envs.gl import DEVICE, rendering_device

_START_PATH = tuple(sys.path)  # Python's path before classes of users are imported, which may change it
WORLD_MB = 500.0  # memory of a worker process with one world, megabytes


def check_memory(num_envs: int, *, idle: int = 0) -> None:
    """Check that the worlds of `--num-envs` fit into memory; a UsageError says how many do.

    `idle` is the number of worker processes that already wait for them.
    """
    available = available_mb() + idle * WORLD_MB
    if num_envs * WORLD_MB > available:
        room = int(available // WORLD_MB)
        remedy = f"give {room} or less" if room else "end other programs, or use a larger machine"
        raise UsageError(
            f"--num-envs {num_envs}: worlds take about {WORLD_MB:.0f} MB each, and {available:.0f} MB of "
            f"memory are available; {remedy}"
        )


def available_mb() -> float:
    """Available memory in megabytes, within the cgroup's limit; infinite if unknown."""
    bounds = []
    with contextlib.suppress(OSError):
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        bounds.append(1024 * int(lines["MemAvailable"].split()[0]))
    group = Path("/sys/fs/cgroup")
    for limit, used, cache in (
        (group / "memory.max", "memory.current", "inactive_file"),
        (group / "memory/memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        with contextlib.suppress(OSError, ValueError, KeyError):  # no such file, or no limit but "max"
            free = int(limit.read_text()) - int(limit.with_name(used).read_text())
            lines = limit.with_name("memory.stat").read_text().splitlines()
            # The cache can be given up.
            bounds.append(free + int(dict(line.split() for line in lines)[cache]))
    return min(bounds, default=float("inf")) / 1e6


JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")


class JobQueue(Generic[JobT]):
    """Jobs that no worker has started.

    Loading a task takes seconds, so a worker gets episodes of the task that it has loaded. When none are
    left, it switches to the task with the most remaining episodes per worker. The same worker runs all jobs
    of an episode, such as its runs in several modes, in sequence; idle workers take over some of them only
    when no new episode is left.
    """

    def __init__(
        self,
        jobs: Iterable[JobT],
        *,
        task: Callable[[JobT], Hashable],
        episode: Callable[[JobT], Hashable],
        on_begin: Callable[[int, JobT], None] = lambda *_: None,
    ) -> None:
        """Queue jobs in the order in which they should run.

        Functions map a job to the task that it needs loaded, and to its episode. `on_begin` is called with
        worker and job when a worker gets a job.
        """
        episodes: dict[Hashable, deque[JobT]] = {}
        for job in jobs:
            episodes.setdefault(episode(job), deque()).append(job)
        self._waiting: dict[Hashable, deque[deque[JobT]]] = {}
        for parts in episodes.values():
            self._waiting.setdefault(task(parts[0]), deque()).append(parts)
        self._task_of: dict[int, Hashable] = {}
        self._begun: dict[int, deque[JobT]] = {}
        self._on_begin = on_begin

    def __len__(self) -> int:
        waiting = (len(parts) for episodes in self._waiting.values() for parts in episodes)
        return sum(waiting) + sum(map(len, self._begun.values()))

    def next_for(self, worker: int) -> JobT | None:
        """The next job for a worker; None if none is left."""
        begun = self._begun.get(worker)
        if not begun:
            left = {task: episodes for task, episodes in self._waiting.items() if episodes}
            if left:
                task = self._task_of.pop(worker, None)
                if task not in left:
                    workers = Counter(self._task_of.values())
                    task = max(left, key=lambda each: len(left[each]) / (1 + workers[each]))
                self._task_of[worker] = task
                begun = left[task].popleft()
            else:  # steal the last job of the started episode with the most jobs left
                longest = max(self._begun.values(), key=len, default=None)
                begun = deque([longest.pop()]) if longest else deque()
            self._begun[worker] = begun
        if not begun:
            return None
        job = begun.popleft()
        self._on_begin(worker, job)
        return job

    def put_back(self, worker: int, job: JobT) -> None:
        """Return a job to the queue; the worker with that number runs it next."""
        self._begun.setdefault(worker, deque()).appendleft(job)


_CRASH = "a library crashed, often the renderer: try another MUJOCO_GL"
OUT_OF_MEMORY = errno.ENOMEM  # exit code of a worker whose job raised MemoryError
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class OrphanedError(BaseException):
    """The other end of the connection has exited. Not a failure of the job, hence no `Exception`."""


@runtime_checkable
class WorkerConnection(Protocol):
    """A worker's connection to the process or actor that answers its requests."""

    @property
    def worker(self) -> int:
        """The worker's number, from 0 on. A replacement has the same number."""

    def send(self, message: object) -> None:
        """Send a message that needs no answer. It must not be None."""

    def request(self, message: object) -> Any:
        """Send a message and wait for the answer."""


class _PipeConnection:
    """A worker's connection to its parent process."""

    def __init__(self, worker: int, connection: Connection) -> None:
        self.worker = worker
        self._connection = connection

    def send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise OrphanedError from None

    def request(self, message: object) -> Any:
        self.send(message)
        return self.receive()

    def receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise OrphanedError from None


# Opens, in a worker, the function that runs a job. Its exceptions stop all workers; `run_in_workers` raises
# them. Has to be picklable: a copy is sent to every worker.
OpenRunner = Callable[[WorkerConnection], AbstractContextManager[Callable[[JobT], ResultT]]]


class _WorkerReady:
    """The worker is ready for jobs."""


@dataclasses.dataclass(frozen=True)
class _JobFinished:
    result: Any


@dataclasses.dataclass(frozen=True)
class _WorkerFailed:
    error: Exception  # that the runner raised


@dataclasses.dataclass(frozen=True)
class _Surroundings:
    """Where the parent process is when it sends a runner."""

    folder: Path  # from which it takes relative paths
    path: Sequence[str]  # where it finds modules
    environment: Mapping[str, str]  # its variables but for the device, which is the worker's own


class _RunnerEnds:
    """There are no more jobs for the runner; the next message is of another."""


def _run_worker(number: int, connection: Connection, parent: int) -> None:
    """Run jobs from the connection until it is closed: the main function of a worker process.

    Messages are `_Surroundings`, a runner, its jobs, and `_RunnerEnds`; then the same again.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    report_crashes()
    with contextlib.suppress(OrphanedError, KeyboardInterrupt):
        if sys.platform == "linux":  # the kernel kills this process when its parent ends for any reason
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent has ended already
            return
        pipe = _PipeConnection(number, connection)
        try:
            while True:
                around: _Surroundings = pipe.receive()
                begin_in(around.folder)
                os.environ.update(around.environment)
                sys.path += [entry for entry in around.path if entry not in sys.path]
                with pipe.receive()(pipe) as run:
                    pipe.send(_WorkerReady())
                    while not isinstance(job := pipe.receive(), _RunnerEnds):
                        pipe.send(_JobFinished(run(job)))
        except MemoryError:
            sys.exit(OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - the process boundary: the parent raises it again
            try:
                pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
            except Exception:  # noqa: BLE001 - unpicklable exceptions fail in many ways
                error = RuntimeError(f"{type(error).__name__}: {error}")
            pipe.send(_WorkerFailed(error))


TIMEOUT_S = 3600.0  # default time limit of a job
MAX_STARTS = 3  # give up on a job after so many workers in a row died or hung before they were ready
_STARTUP_S = 600.0  # time limit for a process to start
_POLL_S = 0.3  # longest delay until Ctrl-C or a hung worker is noticed
_SHUTDOWN_S = 5.0  # time that workers have to exit once told to


@runtime_checkable
class RequestHandler(Protocol):
    """Answers the requests of workers."""

    def handle(self, worker: int, message: Any, answer: Callable[[object], None]) -> None:
        """Accept a worker's request; call `answer`, now or later, to reply."""

    def job_ended(self, worker: int) -> None:
        """Drop the open requests of a worker whose job has ended or failed."""

    def poll(self) -> float:
        """Do one unit of pending work, if any. Returns the seconds until more may be due."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LostJob:
    """A job that failed because its worker died or hung twice, or because no worker could start."""

    reason: str  # how the last worker ended


IdleWorkers = dict[int, tuple[Connection, BaseProcess]]
"""Worker processes that wait for the next runner, by number; they end with this process."""


def run_in_workers(
    open_runner: OpenRunner[JobT, ResultT],
    queue: JobQueue[JobT],
    *,
    workers: int,
    pool: IdleWorkers | None = None,
    check: Callable[[], None],
    handler: RequestHandler,
    timeout_s: float = TIMEOUT_S,
) -> Generator[tuple[JobT, ResultT | LostJob], None, None]:
    """Run jobs in worker processes; yield each job with its result as it completes, in any order.

    `check` is called several times per second; its exceptions stop the workers. A worker whose job takes
    longer than `timeout_s` is replaced. Processes are taken from the `pool`, and return there when all jobs
    are done; without a pool, they end.

    Raises:
        UsageError: A worker cannot start.
        Exception: Any other exception that the runner raises.
    """
    idle = {} if pool is None else pool
    team = [_Worker(open_runner, number, idle) for number in range(min(workers, len(queue)))]
    completed = False
    try:
        for worker in team:
            worker.assign(queue)
        while busy := [worker for worker in team if worker.is_busy]:
            check()
            ends = [end for worker in busy for end in worker.ends]
            ready = set(wait(ends, timeout=min(handler.poll(), _POLL_S)))
            for worker in busy:
                if not (ready.intersection(worker.ends) or worker.kill_if_hung(timeout_s)):
                    continue
                match worker.message():
                    case _WorkerFailed(error):
                        raise error
                    case _WorkerReady():
                        worker.mark_ready()
                    case _JobFinished() | LostJob() as ended:
                        handler.job_ended(worker.number)
                        if isinstance(ended, LostJob) and worker.replace(queue, ended.reason):
                            continue
                        yield worker.job, ended.result if isinstance(ended, _JobFinished) else ended
                        worker.assign(queue)
                    case request:
                        handler.handle(worker.number, request, worker.send)
        completed = True
    finally:
        resting = team if completed and pool is not None else []
        ending = [worker for worker in team if not (worker in resting and worker.rest(idle))]
        for worker in ending:
            worker.stop(now=not completed)
        deadline = time.monotonic() + _SHUTDOWN_S
        for worker in ending:
            worker.join(deadline)


@contextlib.contextmanager
def _own_packages_first() -> Iterator[None]:
    """Have a worker import what this process imported at its start, whatever a policy's class put first."""
    path = sys.path
    sys.path = [*_START_PATH, *(entry for entry in path if entry not in _START_PATH)]
    try:
        yield
    finally:
        sys.path = path


class _Worker:
    """The parent's handle on a worker process and its replacements."""

    def __init__(self, open_runner: OpenRunner[Any, Any], number: int, idle: IdleWorkers) -> None:
        """Take the idle process of that number, or start one."""
        self.number = number
        self.job: Any = None  # the current or last one
        self.is_busy = self._is_retry = False
        self._failed_starts = 0
        self._open_runner = open_runner
        self._device = rendering_device(number)
        self._started_s = 0.0
        self._begin(*(idle.pop(number, None) or self._start()))

    @property
    def ends(self) -> tuple[Connection, int]:
        """The connection and the process's sentinel, for `multiprocessing.connection.wait`."""
        return self._connection, self._process.sentinel

    def mark_ready(self) -> None:
        """Record that the process has started; the job's time limit counts from now."""
        self._is_ready, self._started_s = True, time.monotonic()
        self._failed_starts = 0

    def kill_if_hung(self, timeout_s: float) -> bool:
        """Kill the worker if it exceeded its time limit. Returns whether it did."""
        limit_s = timeout_s if self._is_ready else _STARTUP_S
        hung = time.monotonic() - self._started_s > limit_s
        if hung:
            self._kill(f"it had not {'finished' if self._is_ready else 'started'} after {limit_s:g} s")
        return hung

    def assign(self, queue: JobQueue[Any], *, is_retry: bool = False) -> None:
        job = queue.next_for(self.number)
        self.is_busy = job is not None
        if job is not None:
            if not self._process.is_alive():  # it died between two jobs, neither of which is to blame
                self._restart()
            self.job, self._is_retry, self._started_s = job, is_retry, time.monotonic()
            self.send(job)

    def send(self, message: object) -> None:
        """Send the worker a message. If it has died, `message` reports it."""
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def message(self) -> Any:
        """The next message: a result, a request, or a `LostJob` if the worker has died."""
        try:
            if self._connection.poll():
                return self._connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            pass
        self._process.join(_SHUTDOWN_S)
        code = self._process.exitcode
        ended = "ran out of memory" if code == OUT_OF_MEMORY else how_ended(code, crash=_CRASH)
        return LostJob(reason=self._reason or f"it {ended}")

    def _kill(self, reason: str) -> None:
        self._reason = reason
        self._process.kill()
        self._process.join()

    def replace(self, queue: JobQueue[Any], reason: str) -> bool:
        """Start a new process, and say so. Returns whether the job is retried: once, or until it starts."""
        had_begun = self._is_ready
        self._restart()
        self._failed_starts += not had_begun
        will_retry = not self._is_retry if had_begun else self._failed_starts < MAX_STARTS
        if will_retry:
            queue.put_back(self.number, self.job)
            self.assign(queue, is_retry=self._is_retry or had_begun)
        else:
            self._failed_starts = 0
        its_job = "started again" if will_retry else "given up"
        sys.stderr.write(f"warning: worker {self.number} was lost: {reason}; its job is {its_job}\n")
        return will_retry

    def rest(self, idle: IdleWorkers) -> bool:
        """Put the process among the idle ones. Returns whether it can do that."""
        if can_rest := self._is_ready and self._process.is_alive():
            self.send(_RunnerEnds())
            idle[self.number] = self._connection, self._process
        return can_rest

    def stop(self, *, now: bool) -> None:
        """Make the worker exit after its current job, or now."""
        self._connection.close()
        if now:
            self._process.terminate()

    def join(self, deadline_s: float) -> None:
        """Wait for the process to exit; kill it at the deadline (`time.monotonic`)."""
        self._process.join(max(0.0, deadline_s - time.monotonic()))
        if self._process.is_alive():
            self._kill("")

    def _restart(self) -> None:
        self._kill("")
        self._connection.close()
        self._begin(*self._start())

    def _begin(self, connection: Connection, process: BaseProcess) -> None:
        self._connection, self._process = connection, process
        self._is_ready, self._reason = False, ""
        variables = {name: value for name, value in os.environ.items() if name != DEVICE}
        self.send(_Surroundings(folder=absolute(""), path=tuple(sys.path), environment=variables))
        self.send(self._open_runner)

    def _start(self) -> tuple[Connection, BaseProcess]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_run_worker, args=(self.number, theirs, os.getpid()), daemon=True)
        with contextlib.ExitStack() as environment:
            environment.enter_context(_own_packages_first())
            environment.enter_context(back_where_begun())
            environment.enter_context(without_main())
            if self._device is not None:
                environment.enter_context(environment_variable(DEVICE, str(self._device)))
            process.start()
        theirs.close()  # so that its end is noticed here
        return ours, process
