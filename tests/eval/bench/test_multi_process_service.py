"""The daemon is there where its file names a process that runs, and nowhere else."""

import os
import subprocess
import sys

import pytest

from eval.bench.experiment import mps_is_active


@pytest.fixture
def named(tmp_path):
    """Whether the service is active when its file in the folder of its pipes says something."""

    def is_said(content: str) -> bool:
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(content)
        return mps_is_active({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})

    return is_said


def test_a_running_daemon_is_active(named):
    assert named(f"{os.getpid()}\n")


def test_an_ended_or_missing_daemon_is_not_active(named, tmp_path):
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    assert not named(str(ended.pid))
    assert not named("")
    assert not mps_is_active({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "elsewhere")})
