"""`benchmarks/gpu.sh`: its limits add up to 25 minutes at most, and a second call skips what is done."""

import os
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_MAX_S = 25 * 60
_TIMEOUT = (
    '#!/bin/sh\nfor word in "$@"; do case $word in --*) ;; *) echo "$word" >>"$LIMITS"; exit ;; esac; done\n'
)


@pytest.fixture
def run(tmp_path):
    """Runs the script; parts do nothing but note their limits."""
    programs, limits = tmp_path / "bin", tmp_path / "limits"
    programs.mkdir()
    for name, text in {"timeout": _TIMEOUT, "nvidia-cuda-mps-control": "#!/bin/sh\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "OUT": str(tmp_path / "out"),
        "LIMITS": str(limits),
        **dict.fromkeys(("GOLDEN", "REFERENCE"), str(tmp_path)),
    }

    def script(**settings):
        limits.write_text("")
        command = ["bash", str(_ROOT / "benchmarks/gpu.sh")]
        done = subprocess.run(command, env=environment | settings, capture_output=True, text=True, check=True)
        return done.stdout, [int(line) for line in limits.read_text().split()]

    return script


def test_all_parts_take_at_most_25_minutes_and_are_skipped_by_a_second_call(run):
    said, limits = run()
    assert len(limits) == len(said.splitlines()) == 14
    assert min(limits) > 0
    assert sum(limits) <= _MAX_S
    said, limits = run()
    assert not limits
    assert all(line.endswith(": done before") for line in said.splitlines())
