"""Runs the decode jobs of an engine step: forks new requests into their slots, then decodes.

In mode `parallel`, texts are decoded in a second process with its own weights and programs. Both processes
share one device, scheduled by the operating system or the driver. The second process ends on `close`, or when
the first one dies.
"""

import dataclasses
import functools
import multiprocessing
import os
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

import jax
import numpy as np

from configs.exits import how_ended
from configs.spawning import without_main
from contracts.errors import UsageError
from contracts.text import DecodeWork
from oxygen.model.config import ModelInput, Pi05Config
from oxygen.model.pi05 import Prefix
from oxygen.serving.decode import NewRequests
from oxygen.serving.kv_pool import DecodeState
from oxygen.serving.requests import DecodeJob
from oxygen.serving.runner import ProgramSizes, Runner
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.loading import Loadable, load_weights

_JOIN_TIMEOUT_S = 5.0
_COMPILE_CACHE = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


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
        """Allocate the pool; `waiting` waits for the device, a new thread if None."""
        self._runner = runner
        self._clock = clock
        self._waiting = waiting or ThreadPoolExecutor(1, "waiting-for-the-device")
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
            run = functools.partial(self._run, job, new, inputs if job.own_prefill else prefix, steps)
            if job.to_the_end or job.own_prefill:
                self._left.append(run)
            else:
                run()

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

    def _run(
        self, job: DecodeJob, new: Sequence[NewRequests], source: ModelInput | Prefix | None, steps: int
    ) -> None:
        """Start new requests from a prefix, or after a prefill, then decode at most `steps` tokens of each.

        This does not wait for the device, unless the job runs to its end: then the host reads tokens one step
        behind the device, after steps that can start or end a text. Without a stop token, these are the first
        step and the limits.
        """
        if new:
            prefix = self._runner.prefill(source) if isinstance(source, ModelInput) else source
            assert prefix is not None, "jobs without a prefill of their own follow the actions' prefix"
            for some in new:
                self._pool, self._texts = self._runner.fork(prefix, some, self._pool, self._texts)
            del prefix  # frees its memory before the decoding
        batch = self._runner.sizes.batch_of(job.batch)
        steps = job.steps if job.to_the_end else min(steps, job.steps)
        for written in range(steps):
            before = self._texts
            self._pool, self._texts = self._runner.decode(job.slots, self._pool, before, batch=batch)
            # Whether a text can have started or ended with this number of tokens.
            can_tell = (
                job.to_the_end
                and written > 0
                and any(request.stop_token >= 0 or written in (1, request.limit) for request in job.rows)
            )
            if can_tell and self._all_ended(job, before):
                steps = written + 1
                break
        else:
            if job.to_the_end:
                self._all_ended(job, self._texts)
        prefills = int(job.own_prefill and bool(new))
        self._work.append(DecodeWork(prefills=prefills, forks=len(new), steps=steps, batch=batch))
        if not job.to_the_end:
            self._texts.written.copy_to_host_async()
            self._queued.append((job, self._waiting.submit(_done_at, self._texts, self._clock)))

    def _all_ended(self, job: DecodeJob, texts: DecodeState) -> bool:
        """Record first-token and finish times; returns whether all texts are complete."""
        tokens, now = _read(texts, job.slots), self._clock()
        for request in job.rows:
            if tokens[request.slot]:
                self._first_token_s.setdefault(request.slot, now)
            if request.is_complete(tokens[request.slot]):
                self._finished_s.setdefault(request.slot, now)
        return all(slot in self._finished_s for slot in job.slots)


def _done_at(texts: DecodeState, clock: Callable[[], float]) -> float:
    jax.block_until_ready(texts.written)
    return clock()


def _read(texts: DecodeState, slots: Sequence[int]) -> dict[int, list[int]]:
    """The tokens decoded in some slots so far; waits for the device."""
    written = np.asarray(texts.written)
    return {slot: written[slot][written[slot] >= 0].tolist() for slot in slots}


class SecondProcessError(RuntimeError):
    """The second process failed or died."""


class RemoteTextDecoder:
    """Decodes in a second process, beside the actions; the methods are those of `LocalTextDecoder`."""

    def __init__(
        self,
        config: Pi05Config,
        weights: Loadable,
        sizes: ProgramSizes,
        adapter: AdapterSource | None = None,
    ) -> None:
        """Start the process, and wait until it has loaded weights and adapter and compiled its programs."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        compile_cache = {name: jax.config.values[name] for name in _COMPILE_CACHE}
        arguments = (theirs, compile_cache, config, weights, sizes, adapter)
        # A daemon ends with its parent, even without close().
        self._process = context.Process(target=_serve, args=arguments, name="language", daemon=True)
        with without_main():
            self._process.start()
        theirs.close()
        self._finalizer = weakref.finalize(self, _end, self._process, self._connection)
        self._receive()  # ready, or a failure

    def begin(self, inputs: ModelInput, jobs: Sequence[DecodeJob], prefix: Prefix | None, steps: int) -> None:
        """Send the jobs; the second process starts them at once, with its own prefill."""
        del prefix, steps
        try:
            self._connection.send((inputs, jobs))
        except OSError:
            raise self._gone() from None

    def finish(self) -> DecodeResult:
        """Wait for the second process. Both use the same clock, this machine's `time.perf_counter`."""
        return dataclasses.replace(self._receive(), began_s=0.0)

    def close(self) -> None:
        """End the second process."""
        self._finalizer()

    def _receive(self) -> DecodeResult:
        connection.wait([self._connection, self._process.sentinel])
        try:
            answer = self._connection.recv() if self._connection.poll() else None
        except (EOFError, OSError):
            answer = None
        if isinstance(answer, UsageError | SecondProcessError):
            self.close()
            raise answer
        if answer is None:
            raise self._gone()
        return answer

    def _gone(self) -> SecondProcessError:
        self.close()
        return SecondProcessError(
            f"the second process {how_ended(self._process.exitcode)}; on a GPU it may have run out of "
            "memory: set XLA_PYTHON_CLIENT_PREALLOCATE=false"
        )


TextDecoder: TypeAlias = LocalTextDecoder | RemoteTextDecoder
"""Runs the decode jobs of an engine step: one `begin`, then one `finish`."""


def _end(process: BaseProcess, pipe: connection.Connection) -> None:
    pipe.close()  # which ends the process
    process.join(_JOIN_TIMEOUT_S)
    if process.is_alive():
        process.terminate()
        process.join()


def _serve(
    pipe: connection.Connection,
    compile_cache: Mapping[str, Any],
    config: Pi05Config,
    source: Loadable,
    sizes: ProgramSizes,
    adapter: AdapterSource | None,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes; the first one handles it
    parent = multiprocessing.parent_process()
    assert parent is not None, "runs in a spawned process"

    def die_with_parent() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=die_with_parent, daemon=True).start()
    try:
        for name, value in compile_cache.items():
            jax.config.update(name, value)
        weights = load_weights(source, config)
        beside = None if adapter is None else adapter.load(config, weights)
        runner = Runner(config, weights, sizes, adapter=beside)
        decoder = LocalTextDecoder(runner)
        pipe.send(DecodeResult(tokens={}))
        while True:
            inputs, jobs = pipe.recv()
            decoder.begin(inputs, jobs, None, 0)
            pipe.send(dataclasses.replace(decoder.finish(), compiles=runner.compiles_after_warm_up))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except UsageError as error:  # shown to users in one line
        pipe.send(UsageError(str(error)))
    except Exception as error:  # noqa: BLE001 - the boundary of the process: it is raised again in the first
        message = " ".join(f"{type(error).__name__}: {error}".split())
        pipe.send(SecondProcessError(f"the second process failed: {message}\n{traceback.format_exc()}"))
