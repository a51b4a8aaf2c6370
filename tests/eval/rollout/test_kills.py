"""`kill -9` of workers and of sweeps, at random moments: nothing is lost, doubled or different."""

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
from eval.records.run_folders import Run, SweepFolder
from eval.records.schema import RunFolder
from eval.rollout.executors.executor import SERIAL
from sim_envs.fake import FakeSuite
from tests.eval.rollout.scaled import played, suite_file, timeless
from tests.eval.rollout.worker_worlds import UnhurriedSuite

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = 20
EPISODES = 60


def options(tmp_path: Path, suite: type = UnhurriedSuite) -> dict:
    environment = {"init_ids": EPISODES, "success_at": 12}
    file = suite_file(tmp_path, "fake", suite, environment=environment)
    return {"suites": (file,), "init_ids": tuple(range(EPISODES)), "policy": "noop", "video": "none"}


def start(tmp_path: Path, *more: str) -> subprocess.Popen:
    given = options(tmp_path)
    command = [
        *(sys.executable, "-m", "eval.run", "--suite", given["suites"][0], "--init-ids", f"0-{EPISODES - 1}"),
        *("--policy", "noop", "--video", "none", "--num-envs", "2", "--output-dir", str(tmp_path / "runs")),
    ]
    return subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def workers(run: subprocess.Popen) -> list[psutil.Process]:
    try:
        children = psutil.Process(run.pid).children()
        return [each for each in children if "spawn_main" in " ".join(each.cmdline())]
    except psutil.NoSuchProcess:
        return []


def begun(tmp_path: Path, run: subprocess.Popen) -> None:
    """Wait until it plays."""
    while not (workers(run) and list((tmp_path / "runs").glob("*/manifest.json"))):
        assert run.poll() is None, "it has ended before it was killed"
        time.sleep(0.05)


def ended(tmp_path: Path) -> int:
    """Episodes that have ended so far."""
    return sum(path.read_text().count("\n") for path in (tmp_path / "runs").glob("*/episodes.jsonl"))


def kill_any(run: subprocess.Popen, rng: random.Random) -> None:
    """Kill one of its workers, as soon as it has any."""
    while not (found := workers(run)):
        assert run.poll() is None, "it has ended before its workers were killed"
    os.kill(rng.choice(found).pid, signal.SIGKILL)


def check_whole(tmp_path: Path) -> None:
    (folder,) = [RunFolder(path.parent) for path in (tmp_path / "runs").glob("*/manifest.json")]
    config = RunConfig(**options(tmp_path, FakeSuite))
    (expected,) = played(tmp_path / "expected", config, executor=SERIAL)
    assert timeless(Run(config=config, folder=folder)) == timeless(expected)
    lines = [json.loads(line) for line in folder.episodes_path.read_text().splitlines()]
    graded = [str(line["key"]) for line in lines if line["outcome"] != "error"]
    assert len(set(graded)) == len(graded) == EPISODES
    assert folder.read_manifest()["status"] == "complete"


def test_killed_workers_are_replaced(tmp_path):
    rng = random.Random(7)
    run = start(tmp_path)
    begun(tmp_path, run)
    for _ in range(KILLS):
        before = ended(tmp_path)
        time.sleep(rng.uniform(0, 2))
        kill_any(run, rng)
        while ended(tmp_path) == before:  # however slow the machine is at starting processes
            time.sleep(0.05)
    assert run.wait() == 0, "the run has come to its end"
    while start(tmp_path, "--resume").wait() == 0:  # plays again what was hit twice, and was an error
        pass
    check_whole(tmp_path)


def test_a_sweep_killed_and_resumed_equals_an_uninterrupted_one(tmp_path):
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
