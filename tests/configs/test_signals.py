"""Signals end a process at once, or are deferred to the next check."""

import os
import signal
import subprocess
import sys
import time

import pytest

from configs.signals import DeferredSignals, ends_at_once


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_deferred_signal_raises_at_the_next_check(number):
    with DeferredSignals() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_deferring_takes_precedence_over_ending_at_once():
    with ends_at_once():
        with DeferredSignals() as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)  # the thread that ends the process has had its chance
            assert interrupts.received
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
    code = """
import os, signal
from configs.signals import DeferredSignals
with DeferredSignals():
    os.kill(os.getpid(), signal.SIGTERM)
    print("received", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("never")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGTERM
    assert done.stdout == "received\n"
