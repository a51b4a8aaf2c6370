"""Signals end a process at once, also within one long call of compiled code, or are deferred to a check."""

import os
import signal
import subprocess
import sys
import time

import pytest

from configs.exits import DeferredSignals, ends_at_once

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
_TWICE = """
import os, signal
from configs.exits import DeferredSignals
with DeferredSignals():
    os.kill(os.getpid(), signal.SIGTERM)
    print("received", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("never")
"""


@pytest.mark.parametrize(
    ("busy", "number"),
    [
        ("while True: pass", signal.SIGINT),
        ("import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)", signal.SIGTERM),
        ("import threading; held = threading.Lock(); held.acquire(); held.acquire()", signal.SIGINT),
    ],
)
def test_a_signal_ends_a_starting_command_at_once_and_without_a_traceback(busy, number):
    command = [sys.executable, "-c", _STARTING.format(busy=busy)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            assert process.stdout.readline() == "started\n"
            process.send_signal(number)
            assert process.wait(timeout=60) == 128 + number
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_deferred_signal_raises_at_the_next_check(number):
    with ends_at_once():
        with DeferredSignals() as interrupts:
            interrupts.check()
            os.kill(os.getpid(), number)
            time.sleep(0.05)  # the thread that ends the process has had its chance
            with pytest.raises(KeyboardInterrupt):
                interrupts.check()
        assert signal.set_wakeup_fd(-1) >= 0


def test_while_suspended_signals_act_as_before():
    with ends_at_once():
        before = signal.getsignal(signal.SIGTERM)
        with DeferredSignals() as interrupts:
            with interrupts.suspended():
                assert signal.getsignal(signal.SIGTERM) == before
                assert not interrupts.entered
            assert interrupts.entered
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt), interrupts.suspended():
                pytest.fail("a signal received before is heeded first")


def test_a_second_signal_stops_at_once():
    done = subprocess.run([sys.executable, "-c", _TWICE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "received\n")
