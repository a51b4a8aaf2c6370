"""Temporary folders are gone with their process, or with the next one if it was killed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from configs.paths import temporary_folder

_HOLDING = """
import sys
from configs.paths import temporary_folder
print(temporary_folder("oxygen-eval-test-"), flush=True)
sys.stdin.read()
"""


def test_folders_of_killed_processes_are_removed_and_those_of_others_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    start = [sys.executable, "-c", _HOLDING]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(start, **pipes) as killed, subprocess.Popen(start, **pipes) as other:
        left, held = (Path(each.stdout.readline().strip()) for each in (killed, other))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        (left / "config.yaml").touch()
        for folder in (left, held):
            os.utime(folder, (0, 0))  # older than one whose process might still start
        young = tmp_path / "oxygen-eval-test-young"
        young.mkdir()
        mine = temporary_folder("oxygen-eval-test-")
        assert set(tmp_path.iterdir()) == {held, young, mine}
        other.communicate("")
    assert set(tmp_path.iterdir()) == {young, mine}
