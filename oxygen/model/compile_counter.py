"""Counts compilations, so that a result can prove that none happened after warming up."""

import functools

import jax

_COMPILED = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
    """Counts every compilation in this process, from its making on."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **_: str | int) -> None:
        del duration_secs
        self.count += event == _COMPILED


compile_counter = functools.cache(CompileCounter)
