"""Chooses MuJoCo's headless rendering backend: EGL, else OSMesa, probed in a child process; and EGL's device.

EGL numbers the GPUs whose device files a process may open, by PCI address, and does not read
CUDA_VISIBLE_DEVICES. Without a number, MuJoCo takes the first, which may be granted to another job.
"""

import contextlib
import ctypes
import functools
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from configs.exits import how_ended
from contracts.errors import UsageError, unknown
from sim_envs.blas import environment_variable

DEVICE = "MUJOCO_EGL_DEVICE_ID"  # the number of EGL's device, read by MuJoCo when it is imported
_chosen_here: list[str] = []  # its values that this process has chosen itself
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
    processes, with EGL's device if CUDA_VISIBLE_DEVICES does not grant the first. A UsageError if `MUJOCO_GL`
    or `PYOPENGL_PLATFORM` is invalid.
    """
    if not os.environ.get(DEVICE, "").strip():
        os.environ.pop(DEVICE, None)  # MuJoCo wants a number
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
    load_triton_first()
    platform = os.environ.setdefault("PYOPENGL_PLATFORM", backend)
    if platform != backend:
        raise UsageError(
            f"PYOPENGL_PLATFORM={platform!r} contradicts the rendering backend {backend!r}: unset one of "
            "PYOPENGL_PLATFORM and MUJOCO_GL, or make them equal"
        )
    if backend == "egl" and DEVICE not in os.environ and gpu_count() > 1:
        first = next((device for device in _granted_devices() if _failure("egl", device) is None), 0)
        if first != 0:
            os.environ[DEVICE] = str(first)
            _chosen_here.append(str(first))
    return backend


def require_backend() -> str:
    """The backend of this process, probed even if `MUJOCO_GL` names it; a UsageError if none works."""
    backend = _chosen()
    if (reason := _failure(backend)) is not None:
        raise _broken(backend, reason)
    return backend


def rendering_device(worker: int) -> int | None:
    """The EGL device of a worker, so that workers are spread over the GPUs; None where there is no choice.

    Over those that CUDA_VISIBLE_DEVICES grants. `MUJOCO_EGL_DEVICE_ID`, if set, applies to all of them.
    """
    if gpu_count() < 2 or choose_backend() != "egl" or os.environ.get(DEVICE) not in (None, *_chosen_here):
        return None
    devices = [device for device in _granted_devices() if _failure("egl", device) is None]
    return devices[worker % len(devices)] if devices else None


@functools.cache
def load_triton_first() -> None:
    """Load Triton's library, if it is installed, before a software renderer: otherwise its import crashes.

    Both bring LLVM. Mesa's, once loaded, gets calls of Triton's, and the process ends with SIGSEGV, with
    `import torch` too once it compiles. In this order each keeps its own. Takes 0.2 s.
    """
    spec = importlib.util.find_spec("triton")
    library = Path(spec.origin).parent / "_C" / "libtriton.so" if spec and spec.origin else None
    with contextlib.suppress(OSError):  # no such file, or another system's
        if library is not None and "libLLVM" not in Path("/proc/self/maps").read_text():
            ctypes.CDLL(str(library))


def import_robosuite() -> None:
    """Import robosuite, whose check of EGL's device fails where it is right.

    robosuite demands that the number occurs in CUDA_VISIBLE_DEVICES, where GPUs may be UUIDs, or others than
    those that EGL can open. MuJoCo reads the number before.
    """
    importlib.import_module("mujoco")
    with environment_variable(DEVICE, None):
        importlib.import_module("robosuite.utils.binding_utils")


def gpu_count() -> int:
    """Number of NVIDIA GPUs of this machine."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def _granted_devices() -> list[int]:
    """EGL's devices of the GPUs that CUDA_VISIBLE_DEVICES grants; of all without it, or if it grants none.

    None for a part of a GPU (MIG), which does not render, and for a UUID that is unknown here.
    """
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if named[0] in ("", "-1", "NoDevFiles"):
        return list(range(gpu_count()))
    uuids, granted = _gpu_uuids(), []
    for name in named:
        whole = name.removeprefix("MIG-").partition("/")[0]
        matching = [number for number, uuid in enumerate(uuids) if uuid.startswith(whole)]
        if name.isdecimal():
            granted.append(int(name))
        elif whole.startswith("GPU-") and len(matching) == 1:
            granted.append(matching[0])
        else:  # CUDA ignores it and what follows
            break
    return list(dict.fromkeys(granted))


def _gpu_uuids(driver: Path = Path("/proc/driver/nvidia"), devices: Path = Path("/dev")) -> list[str]:
    """UUIDs of the NVIDIA GPUs that this process may open, by PCI address."""
    uuids = []
    for file in sorted(driver.glob("gpus/*/information")):
        lines = (line.partition(":") for line in file.read_text(errors="replace").splitlines())
        about = {name.strip(): value.strip() for name, _, value in lines}
        if (devices / f"nvidia{about.get('Device Minor')}").exists():
            uuids.append(about.get("GPU UUID", ""))
    return uuids


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
    set_by = ", ".join(name for name in ("MUJOCO_GL", "PYOPENGL_PLATFORM", DEVICE) if os.environ.get(name))
    raise UsageError(
        f"{_NO_OPENGL}: install EGL (libegl1) or OSMesa (libosmesa6), and unset {set_by} ({reasons})"
    )


def _broken(backend: str, reason: str) -> UsageError:
    remedy = "unset MUJOCO_GL to choose another"
    if backend == "egl" and (device := os.environ.get(DEVICE)) is not None:
        remedy = f"unset {DEVICE}={device}, or give the number of another device"
    return UsageError(f"the rendering backend {backend!r} does not work here ({reason}): {remedy}")


def _candidates() -> tuple[str, ...]:
    platform = os.environ.get("PYOPENGL_PLATFORM", "").strip().lower()
    return (platform,) if platform in BACKENDS else BACKENDS


@functools.cache
def _failure(backend: str, device: int | None = None) -> str | None:
    """Why a backend does not work here or on an EGL device; None if it works."""
    chosen = {} if device is None else {DEVICE: str(device)}
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
    return stderr[-1] if stderr else f"the probe {how_ended(probe.returncode)}"
