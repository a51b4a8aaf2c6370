"""Chooses MuJoCo's headless rendering backend: EGL, else OSMesa, probed in a child process."""

import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from configs.errors import UsageError, unknown

BACKENDS = ("egl", "osmesa")  # headless rendering backends, preferred one first
_DISABLED = ("disable", "disabled", "off", "false", "0")

_NO_OPENGL = "no OpenGL to render camera images with"

_PROBE = """
import os, sys
os.environ["MUJOCO_GL"] = os.environ["PYOPENGL_PLATFORM"] = sys.argv[1]
import importlib
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(8, 8)
context.make_current()
os._exit(0)
"""


@functools.cache
def choose_backend() -> str | None:
    """The rendering backend of this process, or None if none works here.

    `MUJOCO_GL`, if set, decides. Otherwise each backend is probed in a child process, since a broken driver
    kills a process instead of raising. The choice is written to the environment for MuJoCo and child
    processes. A UsageError if `MUJOCO_GL` or `PYOPENGL_PLATFORM` is invalid.
    """
    requested = os.environ.get("MUJOCO_GL", "").strip().lower()
    if requested in _DISABLED:
        return None
    if requested and requested not in BACKENDS:
        raise unknown(
            "rendering backend in MUJOCO_GL", requested, BACKENDS, remedy="Unset it to have one chosen."
        )
    backend = requested or next((each for each in _candidates() if _failure(each) is None), None)
    # With "disable", MuJoCo imports no OpenGL at all: physics runs without rendering.
    os.environ["MUJOCO_GL"] = backend or "disable"
    if backend is None:
        return None
    platform = os.environ.setdefault("PYOPENGL_PLATFORM", backend)
    if platform != backend:
        raise UsageError(
            f"PYOPENGL_PLATFORM={platform!r} contradicts the rendering backend {backend!r}: unset one of "
            "PYOPENGL_PLATFORM and MUJOCO_GL, or make them equal"
        )
    return backend


def require_backend() -> str:
    """The backend of this process, probed even if `MUJOCO_GL` names it; a UsageError if none works."""
    backend = _chosen()
    if (reason := _failure(backend)) is not None:
        raise _broken(backend, reason)
    return backend


def rendering_device(worker: int) -> int | None:
    """The EGL device of a worker, so that workers are spread over the GPUs; None where there is no choice.

    `MUJOCO_EGL_DEVICE_ID`, if set, applies to all of them.
    """
    gpus = gpu_count()
    if gpus < 2 or os.environ.get("MUJOCO_EGL_DEVICE_ID") or choose_backend() != "egl":
        return None
    devices = [device for device in range(gpus) if _failure("egl", device) is None]
    return devices[worker % len(devices)] if devices else None


def gpu_count() -> int:
    """Number of NVIDIA GPUs of this machine."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def context_class() -> Callable[[int, int], Any]:
    """MuJoCo's OpenGL context class, of a largest width and height; a UsageError if no backend works here."""
    backend = _chosen()
    try:
        return importlib.import_module(f"mujoco.{backend}").GLContext
    except (ImportError, AttributeError, RuntimeError, ValueError) as error:
        raise _broken(backend, str(error)) from error


def _chosen() -> str:
    """The rendering backend, or an error: unset a variable that disables rendering, or install a backend."""
    if (chosen := choose_backend()) is not None:
        return chosen
    found = {backend: _failure(backend) for backend in _candidates()}
    if None in found.values():
        raise UsageError(f"{_NO_OPENGL}: MUJOCO_GL is {os.environ['MUJOCO_GL']!r}; unset it")
    reasons = "; ".join(f"{each}: {reason}" for each, reason in found.items())
    set_by = " and ".join(name for name in ("MUJOCO_GL", "PYOPENGL_PLATFORM") if os.environ.get(name))
    raise UsageError(
        f"{_NO_OPENGL}: install EGL (libegl1) or OSMesa (libosmesa6), and unset {set_by} ({reasons})"
    )


def _broken(backend: str, reason: str) -> UsageError:
    return UsageError(
        f"the rendering backend {backend!r} does not work here ({reason}): unset MUJOCO_GL to choose another"
    )


def _candidates() -> tuple[str, ...]:
    platform = os.environ.get("PYOPENGL_PLATFORM", "").strip().lower()
    return (platform,) if platform in BACKENDS else BACKENDS


@functools.cache
def _failure(backend: str, device: int | None = None) -> str | None:
    """Why a backend does not work here or on an EGL device; None if it works."""
    chosen = {} if device is None else {"MUJOCO_EGL_DEVICE_ID": str(device)}
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE, backend],
            env={**os.environ, **chosen},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no answer within a minute"
    if probe.returncode == 0:
        return None
    stderr = probe.stderr.strip().splitlines()
    return stderr[-1] if stderr else f"the probe exited with code {probe.returncode}"
