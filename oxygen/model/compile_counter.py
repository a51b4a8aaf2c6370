"""Counts compilations, to verify that none happen after warm-up."""

import functools

import jax

_COMPILED = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
    """Counts every compilation in this process since its creation."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **_: str | int) -> None:
        del duration_secs
        self.count += event == _COMPILED


compile_counter = functools.cache(CompileCounter)
