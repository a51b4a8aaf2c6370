"""Slow stages are one line on standard error."""

import re
import sys
import time

import pytest

from configs.progress import stage


def test_a_stage_is_one_line_whose_seconds_run_on_a_terminal(capsys, monkeypatch):
    with stage("loading [weights]"):
        sys.stderr.write("a warning\n")
    assert re.fullmatch(r"loading \[weights\] \.\.\. a warning\n\d\.\d s\n", capsys.readouterr().err)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    with stage("loading [weights]"):
        sys.stderr.write("a warning\n")
        time.sleep(0.5)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(set(re.findall(r"loading \[weights\] \.\.\. (\d\.\d) s", shown.err))) > 2
    assert "a warning\n" in shown.err
    assert shown.err.endswith(" s\n")
    assert "\x1b[?25l" not in shown.err, "a process that is killed does not hide the cursor"


def test_a_stage_that_fails_ends_its_line(capsys, monkeypatch):
    for compatible in ("0", "1"):
        monkeypatch.setenv("TTY_COMPATIBLE", compatible)
        with pytest.raises(ValueError, match="broken"), stage("loading"):
            raise ValueError("broken")
        assert capsys.readouterr().err.endswith("\n")
