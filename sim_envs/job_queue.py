"""Assigns jobs to workers: a worker keeps its task, and runs the jobs of one episode in sequence."""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

JobT = TypeVar("JobT")


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
        """Queue the jobs.

        Args:
            jobs: The jobs, in the order in which they should run.
            task: Maps a job to the task that it needs loaded.
            episode: Maps a job to its episode.
            on_begin: Called with worker and job when a worker gets a job.
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
        if not self._begun.get(worker):
            self._begun[worker] = self._next_episode(worker)
        own = self._begun[worker]
        if not own:
            return None
        job = own.popleft()
        self._on_begin(worker, job)
        return job

    def put_back(self, worker: int, job: JobT) -> None:
        """Return a job to the queue; the worker with that number runs it next."""
        self._begun.setdefault(worker, deque()).appendleft(job)

    def _next_episode(self, worker: int) -> deque[JobT]:
        left = {task: episodes for task, episodes in self._waiting.items() if episodes}
        if not left:
            return self._stolen_job()
        task = self._task_of.pop(worker, None)
        if task not in left:
            workers = Counter(self._task_of.values())
            task = max(left, key=lambda each: len(left[each]) / (1 + workers[each]))
        self._task_of[worker] = task
        return left[task].popleft()

    def _stolen_job(self) -> deque[JobT]:
        """The last job of the started episode with the most jobs left; empty if there is none."""
        longest = max(self._begun.values(), key=len, default=None)
        return deque([longest.pop()]) if longest else deque()
