"""`kill -9` of a real run in several processes, at random moments: nothing is lost, doubled or different."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from configs.schema import RunConfig
from eval.records.run_folders import Run
from eval.records.schema import RunFolder
from eval.records.sweep_folders import SweepFolder
from eval.rollout.executors.serial import SERIAL
from tests.eval.rollout.scaled import played, suite_file, timeless
from tests.eval.rollout.worker_worlds import UnhurriedSuite

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = 6


def options(tmp_path: Path) -> dict:
    suite = suite_file(tmp_path, "fake", UnhurriedSuite)
    return {"suites": (suite,), "init_ids": tuple(range(8)), "policy": "noop", "video": "none"}


def start(tmp_path: Path, *more: str) -> subprocess.Popen:
    given = options(tmp_path)
    command = [
        *(sys.executable, "-m", "eval.run", "--suite", given["suites"][0], "--init-ids", "0-7"),
        *("--policy", "noop", "--video", "none", "--num-envs", "2", "--output-dir", str(tmp_path / "runs")),
    ]
    return subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def workers(run: subprocess.Popen) -> list[psutil.Process]:
    try:
        children = psutil.Process(run.pid).children()
        return [each for each in children if "spawn_main" in " ".join(each.cmdline())]
    except psutil.NoSuchProcess:
        return []


def begun(tmp_path: Path, run: subprocess.Popen) -> bool:
    """Wait until it plays; False if it has ended before."""
    while run.poll() is None and not (workers(run) and list((tmp_path / "runs").glob("*/manifest.json"))):
        time.sleep(0.05)
    return run.poll() is None


def check_whole(tmp_path: Path) -> None:
    (folder,) = [RunFolder(path.parent) for path in (tmp_path / "runs").glob("*/manifest.json")]
    config = RunConfig(**options(tmp_path))
    (expected,) = played(tmp_path / "expected", config, executor=SERIAL)
    assert timeless(Run(config=config, folder=folder)) == timeless(expected)
    lines = [json.loads(line) for line in folder.episodes_path.read_text().splitlines()]
    graded = [str(line["key"]) for line in lines if line["outcome"] != "error"]
    assert len(set(graded)) == len(graded) == 8
    assert folder.read_manifest()["status"] == "complete"


def test_a_driver_that_is_killed_takes_its_workers_along_and_resume_completes_the_run(tmp_path):
    rng, resume = random.Random(7), ()
    for _ in range(KILLS):
        run = start(tmp_path, *resume)
        if begun(tmp_path, run):
            resume = ("--resume",)
            children = workers(run)
            time.sleep(rng.uniform(0, 3))
            run.kill()
            run.wait()
            assert not psutil.wait_procs(children, timeout=120)[1], "workers outlive their driver"
        if run.returncode == 0:
            break
    else:
        assert start(tmp_path, *resume).wait() == 0
    check_whole(tmp_path)


def test_workers_that_are_killed_are_replaced(tmp_path):
    rng = random.Random(7)
    run = start(tmp_path)
    assert begun(tmp_path, run)
    for _ in range(KILLS):
        time.sleep(rng.uniform(1, 4))
        for victim in workers(run)[:1]:
            os.kill(victim.pid, signal.SIGKILL)
    assert run.wait() == 0, "the run has come to its end"
    while start(tmp_path, "--resume").wait() == 0:  # plays again what was hit twice, and was an error
        pass
    check_whole(tmp_path)


def test_a_sweep_that_is_killed_and_resumed_equals_one_that_was_not(tmp_path):
    rng = random.Random(7)
    suite = suite_file(tmp_path, "fake", UnhurriedSuite)
    command = [
        *(sys.executable, "-m", "eval.sweep", "--suite", suite, "--init-ids", "0-3", "--policy", "noop"),
        *("--mode", "actions", "--clock", "fixed:0,0", "fixed:100,200", "--replan-steps", "2", "5"),
        *("--while-waiting", "continue", "hold", "--num-envs", "2"),
    ]
    once, again = (tmp_path / name for name in ("once", "again"))
    assert subprocess.run([*command, "--output-dir", once], check=False).returncode == 0
    resume: tuple[str, ...] = ()
    for _ in range(KILLS):
        run = subprocess.Popen([*command, "--output-dir", again, *resume])
        while run.poll() is None and not list(again.glob("*/*/manifest.json")):
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 4))
        run.kill()
        run.wait()
        resume = ("--resume",)
        if run.returncode == 0:
            break
    else:
        assert subprocess.run([*command, "--output-dir", again, "--resume"], check=False).returncode == 0
    (first,), (second,) = (list(map(SweepFolder, each.iterdir())) for each in (once, again))
    assert [run.config for run in first.runs()] == [run.config for run in second.runs()]
    assert [timeless(run) for run in first.runs()] == [timeless(run) for run in second.runs()]
    assert [result_of(row) for row in first.read()["cells"]] == [
        result_of(row) for row in second.read()["cells"]
    ]


def result_of(row: dict) -> dict:
    return {name: value for name, value in row.items() if name not in ("run", "against")}
