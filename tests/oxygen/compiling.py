"""Programs that are compiled without being optimised, or as for another device, for tests."""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Literal

import jax
import pytest
from jax.stages import Compiled, Lowered

from oxygen.serving import runner
from oxygen.training import optimiser

Where = Literal["cpu", "elsewhere"]
"""Which branch of the engine is compiled: the one that is a CPU's own, or that of every other device."""

DTYPES_AND_DEVICES = [
    ("float32", "cpu"),
    pytest.param(("float32", "elsewhere"), marks=pytest.mark.slow),
    pytest.param(("bfloat16", "cpu"), marks=pytest.mark.slow),
    pytest.param(("bfloat16", "elsewhere"), marks=pytest.mark.slow),
]

COMPILED_SOON = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""For programs that run a few times: optimising one takes five times as long as compiling it like this."""


def compile_soon(patch: pytest.MonkeyPatch) -> None:
    """Optimise neither the steps of a training nor the programs of a policy."""
    step = jax.jit(
        optimiser.train_step.__wrapped__, static_argnums=0, donate_argnums=2, compiler_options=COMPILED_SOON
    )
    patch.setattr(optimiser, "train_step", step)
    optimised = Lowered.compile

    def compiled(lowered: Lowered, compiler_options: Mapping[str, bool | str] | None = None) -> Compiled:
        return optimised(lowered, {**(compiler_options or {}), **COMPILED_SOON})

    patch.setattr(Lowered, "compile", compiled)


@contextlib.contextmanager
def traced_for(where: Where) -> Iterator[None]:
    """What is traced herein runs on this CPU, but as it would on a device of that kind."""
    with pytest.MonkeyPatch.context() as patch:
        if where == "elsewhere":
            patch.setattr(jax.lax, "platform_dependent", lambda *args, **by: by["default"](*args))
            # JAX knows a function that it has traced; another one of the same content it traces anew.
            patch.setattr(runner, "_decode", functools.partial(runner._decode))
        yield
