"""Provenance of a run: command, commit, versions, hardware."""

import functools
import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from oxygen.model.compile_cache import describe_compilation

_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scipy", "mujoco", "robosuite", "hf-libero", "gymnasium")
_ROOT = Path(__file__).resolve().parents[2]


def command() -> str:
    """The command line, quoted for a shell."""
    return shlex.join(["python", *sys.orig_argv[1:]])


@functools.cache
def git_state() -> dict[str, Any]:
    """Commit of the code at the first call, and whether files differ from it; None outside a checkout.

    A package installed inside another repository does not have that repository's commits.
    """
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != _ROOT:
        return {"commit": None, "dirty": None}
    changes = _git("status", "--porcelain")
    return {"commit": _git("rev-parse", "HEAD"), "dirty": None if changes is None else bool(changes)}


@functools.cache
def versions() -> dict[str, str | None]:
    """Versions of Python and of packages that affect results; None if not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
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


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
