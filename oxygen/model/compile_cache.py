"""XLA's options for the serving programs, by platform, and the persistent compilation cache.

Options are passed to the compiler with each program, not through the environment: an unknown option then
raises instead of aborting the process, and a benchmark can compile one program in several ways.
"""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs.exits import jax_does_not_start
from configs.paths import cache_folder, usable_folder
from contracts.errors import UsageError

CACHE_VARIABLE = "OXYGEN_COMPILE_CACHE"

Options = Mapping[str, bool | str]

GPU: Options = {"xla_gpu_triton_gemm_any": True}
"""Matrix products by Triton wherever autotuning finds it faster, as JAX's guide to GPU performance advises
(docs.jax.dev/en/latest/gpu_performance_tips.html)."""


_UNUSABLE = "the engine's programs do not run with it"
_COMPILES_AGAIN = "with it, programs are compiled again while queries wait"
_OTHER_NUMBERS = "with it, policies and trainings compute other numbers"
_NEEDED: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(("jax_disable_jit", "jax_no_execution", "jax_no_tracing"), (False, _UNUSABLE)),
    **{f"jax_error_checking_behavior_{name}": ("ignore", _UNUSABLE) for name in ("nan", "divide", "oob")},
    **dict.fromkeys(("jax_check_tracer_leaks", "jax_enable_pgle"), (False, _COMPILES_AGAIN)),
    "jax_default_prng_impl": ("threefry2x32", _OTHER_NUMBERS),
    "jax_threefry_partitionable": (True, _OTHER_NUMBERS),
    "jax_random_seed_offset": (0, _OTHER_NUMBERS),
    "jax_high_dynamic_range_gumbel": (False, _OTHER_NUMBERS),
    "jax_default_matmul_precision": (None, _OTHER_NUMBERS),
}
"""Settings of JAX to the value that the engine needs, and why."""


def use_compile_cache() -> Path:
    """Cache compiled programs on disk. Call it before anything is compiled.

    Returns the folder: JAX's own setting (`JAX_COMPILATION_CACHE_DIR`), else a subfolder of `default_cache`
    for this kind of processor. Refuses a flag that XLA does not know, a setting of JAX that breaks the engine
    or changes its numbers, and a folder that cannot be written.
    """
    if os.environ.get("XLA_FLAGS"):  # an unknown flag aborts the process: JAX is tried in a child
        probe = subprocess.run(
            [sys.executable, "-c", "import jax; jax.devices()"],
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if probe.returncode != 0 and "XLA_FLAGS" in probe.stderr:
            message = next(line for line in probe.stderr.splitlines() if "XLA_FLAGS" in line)
            raise UsageError(f"{message.rpartition('] ')[2]}: remove unknown flags, or unset XLA_FLAGS")
    import jax  # `processor` alone needs no JAX

    jax.default_backend()  # fails here, not in a computation, if JAX_PLATFORMS is wrong
    for name, (needed, why) in _NEEDED.items():
        if (found := jax.config.values.get(name, needed)) != needed:
            raise UsageError(f"{name.upper()}={found}: {why}; unset it")
    try:  # for all else that a variable may break
        jax.jit(lambda x: x - x)(np.ones(1, np.float32)).block_until_ready()
    except Exception as error:  # noqa: BLE001 - JAX's checks raise of every kind
        raise jax_does_not_start(error) from None
    configured = jax.config.values["jax_compilation_cache_dir"]
    if configured:
        return Path(configured)
    path = usable_folder(default_cache() / processor(), f"{CACHE_VARIABLE} or XDG_CACHE_HOME")
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path


def default_cache() -> Path:
    """The default folder: `OXYGEN_COMPILE_CACHE`, else `oxygen-eval/compiled` in the user's cache."""
    return cache_folder(CACHE_VARIABLE, "compiled")


def processor() -> str:
    """The machine's architecture and a digest of its processor's features, if available.

    A program compiled for one processor may use instructions that another lacks.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    features = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    return f"{platform.machine()}-{hashlib.sha256(' '.join(features).encode()).hexdigest()[:12]}"


def compiler_options(device: str) -> Options:
    """The options for programs on a platform of JAX, without those that `XLA_FLAGS` sets."""
    if device != "gpu":
        return {}
    flags = shlex.split(os.environ.get("XLA_FLAGS", ""))  # `--name` or `--name=value`
    chosen = {flag.lstrip("-").partition("=")[0].strip() for flag in flags}
    return {name: value for name, value in GPU.items() if name not in chosen}


def describe_compilation(device: str) -> dict[str, Any]:
    """`XLA_FLAGS`, JAX's variables and the options of the serving programs, for manifests and rows."""
    variables = {name: os.environ[name] for name in sorted(os.environ) if name.startswith("JAX_")}
    variables.pop("JAX_COMPILATION_CACHE_DIR", None)  # a folder of this machine
    return {
        "flags": os.environ.get("XLA_FLAGS", ""),
        "variables": variables,
        "options": dict(compiler_options(device)),
    }
