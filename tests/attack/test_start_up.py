"""SIGINT and SIGTERM while a command starts or compiles end it within two seconds, without a traceback."""

import signal
import subprocess
import sys
import time

import pytest

from configs.exits import INTERRUPTED

WITHIN_S = 2.0

IN_ORDER_S = 15.0
"""Once episodes are played: their queries end, records are written, workers and simulators are closed."""

COMMANDS = {
    "eval.run": "--suite libero_object --policy tiny --mode actions unified --task-ids 0 --init-ids 0-9 "
    "--assets standins --video none --output-dir {out}",
    "eval.train": "--data {data} --model tiny --language-tasks narration --steps 1000 --batch 8 "
    "--output-dir {out}",
    "eval.collect": "--suite libero_object --task-ids 0 --init-ids 0-49 --assets standins --workers 2 "
    "--output {out}",
}


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [1, 2, 4, 8, 20])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_ends_a_starting_command(command, number, after_s, data, tmp_path):
    line = COMMANDS[command].format(data=data, out=tmp_path / "out")
    with subprocess.Popen(
        [sys.executable, "-m", command, *line.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        time.sleep(after_s)
        assert process.poll() is None, "it is still at work"
        process.send_signal(number)
        began = time.monotonic()
        out, err = process.communicate(timeout=60)
    took = time.monotonic() - began
    assert process.returncode in (-number, 128 + number, INTERRUPTED)
    assert "Traceback" not in err
    assert took < (IN_ORDER_S if "Interrupted: " in out else WITHIN_S)
