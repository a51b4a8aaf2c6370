"""SIGINT and SIGTERM while a command starts, compiles or works end it without a traceback."""

import signal
import subprocess
import sys
import time

import pytest

from configs.exits import INTERRUPTED
from tests.eval.collect import collecting

COMMANDS = {
    "eval.run": "--suite libero_object --policy tiny --mode actions unified --task-ids 0 --init-ids 0-9 "
    "--assets standins --video none --output-dir {out}",
    "eval.train": "--data {data} --model tiny --language-tasks narration --steps 1000 --batch 8 "
    "--output-dir {out}",
    "eval.collect": "--suite libero_object --task-ids 0 --init-ids 0-49 --assets standins --workers 2 "
    "--output {out}",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A handful of demonstrations, with images of the size of policy `tiny`."""
    folder = tmp_path_factory.mktemp("data")
    source = collecting.FakeDemonstrationSource(image_size=112)
    assert collecting.collect(folder, source=source, image_size=112) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [1, 20])
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
        try:
            _, err = process.communicate(timeout=120)  # of work that takes much longer
        finally:
            process.kill()
    assert process.returncode in (-number, 128 + number, INTERRUPTED)
    assert "Traceback" not in err
