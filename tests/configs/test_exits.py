"""While a command starts, Ctrl-C and SIGTERM end it at once: also within one long call of compiled code."""

import signal
import subprocess
import sys

import pytest

_STARTING = """
from cyclopts import App
from configs.cli import run_app
app = App(name="demo")

@app.default
def starts():
    print("started", flush=True)
    {busy}

run_app(app, [])
"""
_BUSY = {
    "python": "while True: pass",
    "compiled": "import time; (lambda: time.sleep(600))()",
    "locked": "import threading; held = threading.Lock(); held.acquire(); held.acquire()",
}


@pytest.mark.parametrize("busy", _BUSY)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_starting_command_at_once_and_without_a_traceback(busy, number):
    code = _STARTING.format(busy=_BUSY[busy])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "started\n"
            process.send_signal(number)
            assert process.wait(timeout=60) == 128 + number
            assert process.stderr.read() == ""
        finally:
            process.kill()
