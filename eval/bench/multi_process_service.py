"""NVIDIA's multi-process service: without it, kernels of two processes take turns on a GPU."""

import os
from collections.abc import Mapping
from pathlib import Path

_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_DEFAULT_PIPES = "/tmp/nvidia-mps"


def is_active(environment: Mapping[str, str]) -> bool:
    """Whether its control daemon runs, as far as this process can see.

    It leaves its number in the folder that `environment` names, where all communicate that use it. CUDA asks
    for it when it starts, so a daemon that comes later serves later processes only. (NVIDIA, Multi-Process
    Service, 5.2.2.)
    """
    pid_file = Path(environment.get(_PIPES) or _DEFAULT_PIPES) / "nvidia-cuda-mps-control.pid"
    try:
        os.kill(int(pid_file.read_text(encoding="ascii")), 0)  # signal 0 is sent to nobody: it only asks
    except PermissionError:
        return True  # another user's
    except (OSError, ValueError):
        return False
    return True
