"""Mode `parallel`: texts are decoded in a second process with its own weights and programs.

Both processes share one device, scheduled by the operating system or the driver. The second process ends on
`close`, or when the first one dies.
"""

import dataclasses
import multiprocessing
import os
import signal
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

import jax

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.model.inputs import ModelInput
from oxygen.model.pi05 import Prefix
from oxygen.serving.requests import DecodeJob
from oxygen.serving.runner import ProgramSizes, Runner
from oxygen.serving.text_decoder import DecodeResult, LocalTextDecoder
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.loading import Loadable, load_weights

_JOIN_TIMEOUT_S = 5.0
_COMPILE_CACHE = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


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
        """Start the process and wait until its programs are compiled.

        Args:
            config: The model's sizes.
            weights: A seed or a function that loads them, called in the second process.
            sizes: The shapes to compile.
            adapter: Loaded there, too; None without one.
        """
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        compile_cache = {name: jax.config.values[name] for name in _COMPILE_CACHE}
        arguments = (theirs, compile_cache, config, weights, sizes, adapter)
        # A daemon ends with its parent, even without close().
        self._process = context.Process(target=_serve, args=arguments, name="language", daemon=True)
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
            f"the second process died (exit code {self._process.exitcode}); on a GPU it may have run out of "
            "memory: set XLA_PYTHON_CLIENT_PREALLOCATE=false"
        )


TextDecoder: TypeAlias = LocalTextDecoder | RemoteTextDecoder
"""Runs the decode jobs of an engine step: one `begin`, then one `finish`."""


def _end(process: BaseProcess, pipe: connection.Connection) -> None:
    """Close the pipe, which ends the process; terminate it after a timeout."""
    pipe.close()
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
