"""Programs that are compiled without being optimised, for tests."""

from collections.abc import Mapping

import jax
import pytest
from jax.stages import Compiled, Lowered

from oxygen.serving import runner
from oxygen.training import optimiser

DTYPES = ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)]

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
    patch.setattr(runner, "_programs", {})
