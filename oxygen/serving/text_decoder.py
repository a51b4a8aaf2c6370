"""Runs the decode jobs of an engine step: forks new requests into their slots, then decodes."""

import concurrent.futures
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future

import jax
import numpy as np

from oxygen.model.inputs import ModelInput
from oxygen.model.pi05 import Prefix
from oxygen.serving.decode import NewRequests
from oxygen.serving.kv_pool import DecodeState
from oxygen.serving.requests import DecodeJob, DecodeWork
from oxygen.serving.runner import Runner


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeResult:
    """Results of the decode jobs of an engine step."""

    # Slot to all tokens decoded there since its request started, for every decoded slot.
    tokens: Mapping[int, Sequence[int]]
    # Slot to the time of its first token, in seconds of the clock; for jobs that do not run to their end, the
    # time at which the job was done.
    first_token_s: Mapping[int, float] = dataclasses.field(default_factory=dict)
    # Likewise, the time of its last token.
    finished_s: Mapping[int, float] = dataclasses.field(default_factory=dict)
    began_s: float = 0.0  # when the jobs started, if after the actions were delivered; else 0
    done_s: float = 0.0  # when the device finished all jobs
    work: tuple[DecodeWork, ...] = ()  # work of each job, in order
    compiles: int = 0  # compilations in a second process since it was ready; 0 without one


class LocalTextDecoder:
    """Decodes with the runner of the actions, behind the actions.

    Jobs with a step budget that share the actions' prefix are queued behind the actions at once; the others
    start in `finish`, so that no prefill of theirs delays the actions. A thread records when the device is
    done with a job; jobs that run to their end are driven by the host.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        clock: Callable[[], float] = time.perf_counter,
        waiting: Executor | None = None,
    ) -> None:
        """Allocate the pool.

        Args:
            runner: The programs.
            clock: Returns the time in seconds.
            waiting: Executor that waits for the device; a new thread if None.
        """
        self._runner = runner
        self._clock = clock
        self._waiting = waiting or concurrent.futures.ThreadPoolExecutor(1, "waiting-for-the-device")
        self._pool, self._texts = runner.empty()
        self._jobs: Sequence[DecodeJob] = ()
        self._left: list[Callable[[], None]] = []
        self._work: list[DecodeWork] = []
        self._queued: list[tuple[DecodeJob, Future[float]]] = []
        self._first_token_s: dict[int, float] = {}
        self._finished_s: dict[int, float] = {}

    def begin(self, inputs: ModelInput, jobs: Sequence[DecodeJob], prefix: Prefix | None, steps: int) -> None:
        """Queue the jobs that share the prefix and have a budget; for others, only send the new requests.

        Args:
            inputs: The observations of the step, for jobs with their own prefill.
            jobs: Decode jobs, in order; at least one.
            prefix: The actions' prefix; None if every job has its own prefill.
            steps: Decode steps of jobs that do not run to their end.
        """
        self._jobs, self._left, self._work, self._queued = jobs, [], [], []
        self._first_token_s, self._finished_s = {}, {}
        forks = self._runner.sizes.forks
        for job in jobs:
            size = forks[0] if job.own_prefill else forks[-1]
            new = [
                self._runner.new_requests(job.new[first : first + size], batch=size)
                for first in range(0, len(job.new), size)
            ]
            source = inputs if job.own_prefill else prefix
            if job.to_the_end:
                self._left.append(functools.partial(self._run_to_the_end, job, new, source))
            elif job.own_prefill:
                self._left.append(functools.partial(self._queue, job, new, source, steps))
            else:
                self._queue(job, new, source, steps)

    def finish(self) -> DecodeResult:
        """Run the jobs that are left, then read the tokens back."""
        began_s = self._clock() if self._left else 0.0
        for run in self._left:
            run()
        self._left = []  # frees their prefixes
        for job, done in self._queued:
            known_s = dict.fromkeys(job.slots, done.result())
            self._first_token_s |= known_s
            self._finished_s |= known_s
        slots = [slot for job in self._jobs for slot in job.slots]
        return DecodeResult(
            tokens=_read(self._texts, slots),
            first_token_s=self._first_token_s,
            finished_s=self._finished_s,
            began_s=began_s,
            done_s=max(self._finished_s.values()) if self._queued else _done_at(self._texts, self._clock),
            work=tuple(self._work),
        )

    def close(self) -> None:
        """End the waiting thread."""
        self._waiting.shutdown()

    def _fork(self, source: ModelInput | Prefix | None, new: Sequence[NewRequests]) -> None:
        """Start new requests, if any, from a prefix, or from observations after a prefill."""
        if not new:
            return
        prefix = self._runner.prefill(source) if isinstance(source, ModelInput) else source
        assert prefix is not None, "jobs without a prefill of their own follow the actions' prefix"
        for some in new:
            self._pool, self._texts = self._runner.fork(prefix, some, self._pool, self._texts)

    def _queue(
        self, job: DecodeJob, new: Sequence[NewRequests], source: ModelInput | Prefix | None, steps: int
    ) -> None:
        """Decode at most `steps` tokens of each text, without waiting for the device."""
        self._fork(source, new)
        steps = min(steps, job.steps)
        for _ in range(steps):
            self._decode(job)
        self._note(job, forks=len(new), steps=steps)
        self._texts.written.copy_to_host_async()
        self._queued.append((job, self._waiting.submit(_done_at, self._texts, self._clock)))

    def _run_to_the_end(
        self, job: DecodeJob, new: Sequence[NewRequests], source: ModelInput | Prefix | None
    ) -> None:
        """Decode until every text is complete; the host reads tokens one step behind the device.

        Tokens are read only after steps that can start or end a text: without a stop token, these are the
        first step and the limits.
        """
        self._fork(source, new)
        steps = job.steps
        for written in range(job.steps):
            before = self._texts
            self._decode(job)
            # Whether a text can have started or ended with this number of tokens.
            can_tell = written > 0 and any(
                request.stop_token >= 0 or written in (1, request.limit) for request in job.rows
            )
            if can_tell and self._all_ended(job, before):
                steps = written + 1
                break
        else:
            self._all_ended(job, self._texts)
        self._note(job, forks=len(new), steps=steps)

    def _note(self, job: DecodeJob, *, forks: int, steps: int) -> None:
        batch = self._runner.sizes.batch_of(job.batch)
        prefills = int(job.own_prefill and bool(job.new))
        self._work.append(DecodeWork(prefills=prefills, forks=forks, steps=steps, batch=batch))

    def _all_ended(self, job: DecodeJob, texts: DecodeState) -> bool:
        """Record first-token and finish times; returns whether all texts are complete."""
        tokens, now = _read(texts, job.slots), self._clock()
        for request in job.rows:
            if tokens[request.slot]:
                self._first_token_s.setdefault(request.slot, now)
            if request.is_complete(tokens[request.slot]):
                self._finished_s.setdefault(request.slot, now)
        return all(slot in self._finished_s for slot in job.slots)

    def _decode(self, job: DecodeJob) -> None:
        batch = self._runner.sizes.batch_of(job.batch)
        self._pool, self._texts = self._runner.decode(job.slots, self._pool, self._texts, batch=batch)


def _done_at(texts: DecodeState, clock: Callable[[], float]) -> float:
    jax.block_until_ready(texts.written)
    return clock()


def _read(texts: DecodeState, slots: Sequence[int]) -> dict[int, list[int]]:
    """The tokens decoded in some slots so far; waits for the device."""
    written = np.asarray(texts.written)
    return {slot: written[slot][written[slot] >= 0].tolist() for slot in slots}
