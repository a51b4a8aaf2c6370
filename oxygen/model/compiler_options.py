"""XLA's options for the serving programs, by platform.

They are passed to the compiler with each program, not through the environment: an unknown option then raises
instead of aborting the process, and a benchmark can compile one program in several ways.
"""

import os
import shlex
from collections.abc import Mapping
from typing import Any

Options = Mapping[str, bool | str]

GPU: Options = {"xla_gpu_triton_gemm_any": True}
"""Matrix products by Triton wherever autotuning finds it faster, as JAX's guide to GPU performance advises
(docs.jax.dev/en/latest/gpu_performance_tips.html). `benchmarks.candidates` measures it beside XLA's defaults
and other options."""


def compiler_options(platform: str) -> Options:
    """The options for programs on a platform (JAX's name of it), without those that `XLA_FLAGS` sets."""
    if platform != "gpu":
        return {}
    flags = shlex.split(os.environ.get("XLA_FLAGS", ""))  # `--name` or `--name=value`
    chosen = {flag.lstrip("-").partition("=")[0].strip() for flag in flags}
    return {name: value for name, value in GPU.items() if name not in chosen}


def describe_compilation(platform: str) -> dict[str, Any]:
    """`XLA_FLAGS` and the options of the serving programs, for manifests and rows."""
    return {"flags": os.environ.get("XLA_FLAGS", ""), "options": dict(compiler_options(platform))}
