"""Provenance of a run: command, commit, versions, hardware."""

import functools
import os
import platform
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from configs import installed
from configs.installed import imported_version
from contracts.redaction import redact_command
from oxygen.model.compile_cache import describe_compilation

_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scipy", "mujoco", "robosuite", "hf-libero", "gymnasium")
_ALWAYS = ("jax", "jaxlib", "flax", "numpy", "scipy")


def command() -> str:
    """The command line without its secrets, quoted for a shell."""
    return shlex.join(["python", *redact_command(sys.orig_argv[1:])])


@functools.cache
def git_state() -> dict[str, Any]:
    """Commit of the code at the first call, and whether files differ from it; None outside a checkout.

    A package installed inside another repository does not have that repository's commits.
    """
    return installed.git_state(Path(__file__))


@functools.cache
def versions() -> dict[str, str | None]:
    """Versions of Python and of packages that affect results; None if not installed.

    A UsageError if Python imports a package of every run from elsewhere; suites check their own.
    """
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = (imported_version if package in _ALWAYS else version)(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def hardware() -> dict[str, Any]:
    """Processor, memory and load of this machine; with JAX imported, also accelerators and XLA's options."""
    jax = sys.modules.get("jax")  # importing it here would be slow
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "platform": platform.platform(),
        "accelerators": [f"{device.platform}: {device.device_kind}" for device in jax.devices()]
        if jax
        else [],
        "xla": describe_compilation(jax.default_backend()) if jax else None,
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
