"""Mode `parallel`: language is decoded in a second process, with weights and programs of its own.

Both processes share one device, as the operating system or the device's driver lets them. The second one ends
when it is told to, and at once when the first is gone, whatever it died of.
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
from typing import Any

import jax

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.model.inputs import ModelInput
from oxygen.model.pi05 import Prefix
from oxygen.serving.requests import DecodeJob
from oxygen.serving.runner import Runner, Sizes
from oxygen.serving.text_decoder import DecodeResult, LocalTextDecoder
from oxygen.weights.source_of import Loadable, load_weights

_PATIENCE_S = 5.0
_COMPILE_CACHE = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


def _compile_cache() -> Mapping[str, Any]:
    return {name: jax.config.values[name] for name in _COMPILE_CACHE}


class SecondProcessError(RuntimeError):
    """The process that does the language has failed, or is gone."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Failure:
    """Why the second process could not go on; `ours` if a person can mend it."""

    message: str
    details: str
    ours: bool


class RemoteTextDecoder:
    """Decodes in a second process, beside the actions."""

    def __init__(self, config: Pi05Config, weights: Loadable, sizes: Sizes) -> None:
        """Start the process and wait until its programs are ready.

        Args:
            config: The model's sizes.
            weights: A seed or a function that loads them; it is sent, they are not.
            sizes: The shapes to compile.
        """
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, _compile_cache(), config, weights, sizes)
        # A daemon is ended with its parent, even where nobody has called close().
        self._process = context.Process(target=_serve, args=arguments, name="language", daemon=True)
        self._process.start()
        theirs.close()
        self._finalizer = weakref.finalize(self, _end, self._process, self._connection)
        self._receive()  # it is ready, or says why it is not

    def begin(self, inputs: ModelInput, jobs: Sequence[DecodeJob], prefix: Prefix | None, steps: int) -> None:
        """Send the jobs; the second process starts on them at once, with a prefill of its own."""
        del prefix, steps
        try:
            self._connection.send((inputs, jobs))
        except OSError:
            raise self._gone() from None

    def finish(self) -> DecodeResult:
        """Wait for the second process. Its clock is the same, `time.perf_counter` of this machine."""
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
        if isinstance(answer, _Failure):
            self.close()
            if answer.ours:
                raise UsageError(answer.message)
            raise SecondProcessError(f"the language process failed: {answer.message}\n{answer.details}")
        if answer is None:
            raise self._gone()
        return answer

    def _gone(self) -> SecondProcessError:
        self.close()
        return SecondProcessError(
            f"the language process is gone (exit code {self._process.exitcode}); on a GPU it may have found "
            "no memory left: set XLA_PYTHON_CLIENT_PREALLOCATE=false"
        )


def _end(process: BaseProcess, pipe: connection.Connection) -> None:
    """Ask it to end by closing the pipe, then insist."""
    pipe.close()
    process.join(_PATIENCE_S)
    if process.is_alive():
        process.terminate()
        process.join()


def _serve(pipe: connection.Connection, compile_cache: Mapping[str, Any], *model: Any) -> None:
    """The second process: compile, say so, and decode step after step until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the first process decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        for name, value in compile_cache.items():
            jax.config.update(name, value)
        _decode(pipe, *model)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:  # noqa: BLE001 - the boundary of the process: it is raised again in the first
        message = " ".join(f"{type(error).__name__}: {error}".split())
        ours = isinstance(error, UsageError)
        failure = _Failure(message=str(error) if ours else message, details=traceback.format_exc(), ours=ours)
        pipe.send(failure)


def _decode(pipe: connection.Connection, config: Pi05Config, weights: Loadable, sizes: Sizes) -> None:
    runner = Runner(config, load_weights(weights, config), sizes)
    decoder = LocalTextDecoder(runner)
    pipe.send(DecodeResult(tokens={}))
    while True:
        inputs, jobs = pipe.recv()
        decoder.begin(inputs, jobs, None, 0)
        pipe.send(dataclasses.replace(decoder.finish(), compiles=runner.compiles_after_warm_up))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in a process that another one has spawned"
    connection.wait([parent.sentinel])
    os._exit(1)
