"""Detects NVIDIA's multi-process service. Without it, kernels of two processes take turns on a GPU."""

import os
from collections.abc import Mapping
from pathlib import Path

_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_DEFAULT_PIPES = "/tmp/nvidia-mps"


def is_active(environment: Mapping[str, str]) -> bool:
    """Whether its control daemon runs, by the PID file in the folder that `environment` names.

    CUDA connects to it at start, so a daemon that starts later serves later processes only. (NVIDIA,
    Multi-Process Service, 5.2.2.)
    """
    pid_file = Path(environment.get(_PIPES) or _DEFAULT_PIPES) / "nvidia-cuda-mps-control.pid"
    try:
        os.kill(int(pid_file.read_text(encoding="ascii")), 0)  # signal 0 only checks that the process exists
    except PermissionError:
        return True  # the process is another user's
    except (OSError, ValueError):
        return False
    return True
