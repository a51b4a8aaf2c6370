"""The second process of mode `parallel`: how it fails, and that it never outlives the first."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from configs.errors import UsageError
from oxygen.model.params import random_params
from oxygen.policy.vector_policy import create_vector_policy
from oxygen.robots.tokenizer import tiny
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.runner import ProgramSizes
from oxygen.serving.scheduler import Mode
from oxygen.serving.text_decoder import RemoteTextDecoder, SecondProcessError
from oxygen.weights import load
from tests.oxygen.conftest import SMALL, TASKS


def start(weights):
    return RemoteTextDecoder(SMALL, weights, ProgramSizes(slots=2, rows=(1,), forks=(1,), suffix=1, limit=1))


@pytest.mark.slow
def test_a_checkpoint_that_is_not_there_is_refused_as_in_one_process():
    absent = functools.partial(load, "/no/such/checkpoint", SMALL)
    with pytest.raises(UsageError, match="/no/such/checkpoint") as refusal:
        start(absent)
    assert "\n" not in str(refusal.value)


def test_a_process_that_is_gone_is_one_clear_error():
    with pytest.raises(SecondProcessError, match="the second process died \\(exit code 3\\)"):
        start(functools.partial(os._exit, 3))


@pytest.mark.slow
def test_a_process_that_dies_between_two_queries_is_an_error_of_the_next(policy, observe):
    engine = EngineConfig(mode=Mode.PARALLEL, slots=10, rows=8)
    other = policy.with_engine(engine)
    other.reset(7)
    other.act(observe(0))
    assert other.complete().tokens > 0
    process = other._policy._engine._decoder._process
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    for number in (1, 2):
        with pytest.raises(SecondProcessError, match="the second process died \\(exit code -9\\)"):
            other.act(observe(number))


def test_weights_that_are_arrays_cannot_be_sent():
    engine = EngineConfig(mode=Mode.PARALLEL, slots=2, rows=1)
    with pytest.raises(UsageError, match="give a seed or a function that loads them"):
        create_vector_policy(
            SMALL, weights=random_params(SMALL, 0), tokenizer=tiny(), tasks=TASKS, engine=engine
        )


_PARENT = """
import functools, multiprocessing, signal, sys, threading, time
from tests.oxygen.serving.test_second_process import start

def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    busy = functools.partial(time.sleep, 600)
    threading.Thread(target=start, args=(busy,), daemon=True).start()
    while not multiprocessing.active_children():
        time.sleep(0.01)
    print(multiprocessing.active_children()[0].pid, flush=True)
    time.sleep(600)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGINT])
def test_no_orphan_is_left_whatever_the_first_process_dies_of(death, tmp_path):
    """Even in the middle of loading weights, where it listens to nobody."""
    program = tmp_path / "parent.py"
    program.write_text(_PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    parent = subprocess.Popen(
        [sys.executable, str(program)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(death)
    deadline = time.monotonic() + 120
    while runs(pid):
        assert time.monotonic() < deadline, "the second process is still there"
        time.sleep(0.05)


def runs(pid):
    """Whether a process runs; one that is dead and not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
